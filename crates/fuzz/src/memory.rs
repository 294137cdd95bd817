//! How much memory something takes: a global allocator that counts, thread by thread.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes held now, relative to where a measurement began, and their largest number since.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// Counts what it passes on to the system's allocator.
pub(crate) struct Counting;

fn count(bytes: isize) {
    // A thread that is ending has no counter any more.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now.wrapping_add(bytes);
        held.set((now, most.max(now)));
    });
}

// SAFETY: every call goes to the system's allocator as it is; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: what the caller promises is what `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new may both exist for a moment.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `work` and says how many bytes it held at once, at most.
pub(crate) fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    HELD.set((0, 0));
    let value = work();
    (value, HELD.get().1.max(0) as usize)
}

/// The most that decoding may hold at once, for an input of so many bytes. Lists grow by doubling, and a list
/// element of few bytes (a deletion of six) can be a large value in memory; beyond that nothing grows.
pub(crate) fn allowed(input: usize) -> usize {
    input * 128 + 4096
}

/// Runs a decoder over `input` bytes and checks that it takes no more memory than those bytes are worth.
pub(crate) fn bounded<T>(input: usize, decode: impl FnOnce() -> T) -> T {
    let (value, held) = measured(decode);
    assert!(
        held <= allowed(input),
        "{held} bytes of memory for {input} bytes of input"
    );
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_at_once_is_counted() {
        let (kept, held) = measured(|| {
            drop(vec![0u8; 5000]);
            vec![0u8; 3000]
        });
        assert_eq!((kept.len(), held), (3000, 5000));
        let (_, held) = measured(|| {
            let mut v = vec![1u8; 1000];
            v.reserve_exact(1000);
            v
        });
        assert!((2000..=3000).contains(&held), "{held}");
    }

    #[test]
    #[should_panic(expected = "bytes of memory")]
    fn too_much_is_told() {
        bounded(20, || vec![0u8; 1 << 20]);
    }
}

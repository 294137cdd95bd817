//! Memory: mimalloc, asked in the way that costs least.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// What every block of mimalloc is aligned to that is at least as long (`MI_MAX_ALIGN_SIZE`).
const ALWAYS: usize = 16;

/// The same as `mimalloc::MiMalloc`, which asks for all blocks as for aligned ones: a fifth of them then
/// takes a detour of 180 instructions, is longer than it need be, and takes longer to free.
pub struct Allocator;

fn is_plain(align: usize, size: usize) -> bool {
    align <= ALWAYS && align <= size
}

// SAFETY: blocks are as long and as aligned as is asked for, and are freed by whom they came from: mimalloc
// frees and moves blocks of either kind alike.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size may be asked for, and `Layout` has powers of two.
        unsafe {
            if is_plain(layout.align(), layout.size()) {
                mi::mi_malloc(layout.size()).cast()
            } else {
                mi::mi_malloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_plain(layout.align(), layout.size()) {
                mi::mi_zalloc(layout.size()).cast()
            } else {
                mi::mi_zalloc_aligned(layout.size(), layout.align()).cast()
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: who calls says that it is a block of ours.
        unsafe { mi::mi_free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if is_plain(layout.align(), size) {
                mi::mi_realloc(block.cast(), size).cast()
            } else {
                mi::mi_realloc_aligned(block.cast(), size, layout.align()).cast()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn blocks_are_aligned_and_keep_what_is_in_them() {
        for align in [1, 2, 8, 16, 32, 4096] {
            for size in [1, 7, 8, 15, 16, 17, 24, 40, 80, 1000, 1025, 5000, 100_000] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: no size is 0, and each block is freed by its layout.
                unsafe {
                    let block = Allocator.alloc_zeroed(layout);
                    assert!(
                        !block.is_null() && block.align_offset(align) == 0,
                        "{size} {align}"
                    );
                    assert!((0..size).all(|i| block.add(i).read() == 0));
                    block.write_bytes(7, size);
                    let longer = Allocator.realloc(block, layout, 3 * size);
                    assert!(
                        !longer.is_null() && longer.align_offset(align) == 0,
                        "{size} {align}"
                    );
                    assert!((0..size).all(|i| longer.add(i).read() == 7));
                    let layout = Layout::from_size_align(3 * size, align).expect("a layout");
                    Allocator.dealloc(longer, layout);
                    let other = Allocator.alloc(layout);
                    assert!(
                        !other.is_null() && other.align_offset(align) == 0,
                        "{size} {align}"
                    );
                    Allocator.dealloc(other, layout);
                }
            }
        }
    }
}

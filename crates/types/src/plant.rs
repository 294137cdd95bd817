//! Planted bugs: each hazard's rule can be taken out, to prove that the checkers would notice
//! (`docs/testing.md`).
//!
//! `plant!(H44)` is `false` at compile time unless the cargo feature `plant` is on, and even then only while
//! a test planted that name on its thread.

#[cfg(feature = "plant")]
mod on {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static PLANTED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Plants these bugs on this thread, and no others.
    pub fn set(names: &[&str]) {
        PLANTED.with(|p| *p.borrow_mut() = names.iter().map(|n| (*n).to_owned()).collect());
    }

    /// Whether a bug is planted.
    pub fn planted(name: &str) -> bool {
        PLANTED.with(|p| p.borrow().contains(name))
    }
}

#[cfg(feature = "plant")]
pub use on::{planted, set};

/// Whether a bug is planted: never, in this build.
#[cfg(not(feature = "plant"))]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}

/// Whether the named rule is taken out.
#[macro_export]
macro_rules! plant {
    ($name:ident) => {
        $crate::plant::planted(stringify!($name))
    };
}

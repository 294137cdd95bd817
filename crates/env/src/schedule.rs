//! What is to happen, in order: the earliest first, and of two at one instant the one that was planned first.

use std::cmp::Ordering;

/// An event and its time, for a heap.
pub struct Scheduled<E> {
    /// Virtual time, in nanoseconds.
    pub time: u64,
    /// Rises with each that is planned.
    pub seq: u64,
    /// The event.
    pub event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl<E> Eq for Scheduled<E> {}
impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Scheduled<E> {
    /// The heap gives out the greatest: the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.seq).cmp(&(self.time, self.seq))
    }
}

//! Fuzz targets: functions over any bytes that panic when a property does not hold. libFuzzer finds inputs
//! for them (`make fuzz`); the test `replay` runs the committed ones under stable Rust (`make test`).
//! docs/testing.md says how.

mod memory;
pub mod pack;
pub mod seeds;
mod targets;

pub use targets::{TARGETS, Target, named};

use memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

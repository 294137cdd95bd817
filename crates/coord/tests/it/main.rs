//! Tests of `pando-coord` from outside.

mod common;
mod dir;
mod processes;
mod zoo;

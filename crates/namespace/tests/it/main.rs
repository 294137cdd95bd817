//! Tests of `pando-namespace` from outside: one program for all, so that they are linked once.

mod births;
mod sparse;

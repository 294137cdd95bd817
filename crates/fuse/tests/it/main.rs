//! Tests of `pando-fuse` from outside: one program for all, so that they are linked once.

mod again;
mod links;
mod mount;
mod patched;
mod publish;
mod ranges;
mod support;

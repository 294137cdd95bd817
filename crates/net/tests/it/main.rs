//! Tests of `pando-net` from outside: one program for all, so that they are linked once.

mod calls;
mod common;
mod hostile;
mod keys;
mod tls;
mod waiting;

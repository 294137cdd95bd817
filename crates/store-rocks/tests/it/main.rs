//! Tests of `pando-store-rocks` from outside: one program for all, so that they are linked once.

mod columns;
mod common;
mod conformance;
mod crash;
mod damage;
mod journal;
mod open;
mod room;

//! Tests of `pando-model` from outside: one program for all, so that they are linked once.

mod linux;
mod rules;

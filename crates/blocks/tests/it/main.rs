//! Tests of `pando-blocks` from outside: one program for all, so that they are linked once.

mod s3;

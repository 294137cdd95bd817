//! Tests of the program from outside.

mod auth;
mod auth_tls;
mod bench;
mod bench_join;
mod bench_posix;
mod cluster;
mod commands;
mod figures;
mod hammering;
mod processes;
#[path = "../../../coord/tests/it/zoo/mod.rs"]
mod zoo;

//! All targets. Whatever a peer, a disk or a person can hand us as bytes goes through one of them.

mod frames;
mod hello;
mod records;
mod server;
mod table;
mod texts;
mod tree;
mod wire;
mod world;

pub(crate) use frames::FS;
pub(crate) use hello::{HERE, KEY};
pub(crate) use server::{BOOT, EXPLAIN, INSTANCE, OBJECTS, OPERATES, PASS, SEQUENCE, STATEMENTS, TWICE};
pub(crate) use table::{AS_IS, HASHED, Localised, PUT_RIGHT};
pub(crate) use wire::seal_key;
pub(crate) use world::small_map;

use crate::memory::bounded;
use pando_format::{Codec, DecodeError};
use std::fmt::Debug;

/// A property of all byte strings.
pub struct Target {
    /// Its name: of its corpus, and for `PANDO_FUZZ_TARGET`.
    pub name: &'static str,
    /// Panics if the property does not hold.
    pub run: fn(&[u8]),
    /// Inputs longer than this teach nothing new.
    pub max_len: usize,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("frames", frames::frames, 4096),
    target("hello", hello::hello, 512),
    target("message", wire::message, 8192),
    target("sealed", wire::sealed, 2048),
    target("statement", wire::statement, 512),
    target("map", wire::map, 16_384),
    target("key", records::key, 512),
    target("range", records::range, 1024),
    target("record", records::record, 4096),
    target("mutation", records::mutation, 4096),
    target("bundle", records::bundle, 8192),
    target("cluster_file", texts::cluster_file, 4096),
    target("secret", texts::secret, 512),
    target("path", texts::path, 4200),
    target("server", server::server, 16384),
    target("table", table::table, 4096),
];

const fn target(name: &'static str, run: fn(&[u8]), max_len: usize) -> Target {
    Target { name, run, max_len }
}

/// The target of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

/// Decodes, within the memory such bytes are worth. What decodes has one form: it is encoded to the same
/// bytes again.
fn canonical<T: Codec + PartialEq + Debug>(bytes: &[u8]) -> Result<T, DecodeError> {
    let value = bounded(bytes.len(), || T::from_bytes(bytes))?;
    assert_eq!(value.to_bytes(), bytes, "another form of {value:?}");
    Ok(value)
}

//! What people edit or type.

use crate::memory::bounded;
use pando_auth::Secret;
use pando_client::components::{Component, components};
use pando_cluster::ClusterFile;
use pando_types::{Errno, NAME_MAX, PATH_MAX};
use std::path::Path;

/// `cluster.json`.
pub(crate) fn cluster_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // Errors of the parser quote and box what they met.
    let Ok(file) = bounded(input.len() + 64, || ClusterFile::parse(text)) else {
        return;
    };
    let again = ClusterFile::parse(&file.to_text());
    assert!(again.is_ok_and(|f| f == file));
    let Ok(map) = file.map(Path::new("/d")) else {
        return;
    };
    assert_eq!(map.check(), Ok(()));
    assert_eq!(format!("{:032x}", map.fs.0), file.fs.to_ascii_lowercase());
    for (from, to, owner) in &file.slots {
        for slot in *from..*to {
            assert_eq!(map.slots[usize::from(slot)].0, *owner);
        }
    }
    super::wire::map(&pando_format::Codec::to_bytes(&map));
}

/// The file `secret`.
pub(crate) fn secret(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(secret) = Secret::from_hex(text) {
        assert_eq!(secret.to_hex(), text.to_ascii_lowercase());
    }
    let Ok(secrets) = bounded(input.len(), || Secret::from_lines(text)) else {
        return;
    };
    assert_eq!(secrets.len(), text.lines().count());
    let written: Vec<String> = secrets.iter().map(Secret::to_hex).collect();
    assert!(Secret::from_lines(&written.join("\n")).is_ok_and(|again| again == secrets));
}

/// Paths, and the targets of symlinks, which anybody may write.
pub(crate) fn path(input: &[u8]) {
    match bounded(input.len(), || components(input)) {
        Ok((parts, slash)) => {
            assert!(!input.is_empty() && input.len() < PATH_MAX);
            assert_eq!(slash, input.last() == Some(&b'/'));
            let words: Vec<&[u8]> = parts
                .iter()
                .map(|part| match part {
                    Component::Dot => b".".as_slice(),
                    Component::DotDot => b"..",
                    Component::Name(name) => name.as_bytes(),
                })
                .collect();
            let said: Vec<&[u8]> = input.split(|b| *b == b'/').filter(|w| !w.is_empty()).collect();
            assert_eq!(words, said);
            let joined = words.join(&b'/');
            assert!(joined.is_empty() || components(&joined) == Ok((parts, false)));
        }
        Err(Errno::NotFound) => assert!(input.is_empty()),
        Err(Errno::NameTooLong) => {
            let long = input.split(|b| *b == b'/').any(|w| w.len() > NAME_MAX);
            assert!(input.len() >= PATH_MAX || long);
        }
        Err(Errno::Invalid) => assert!(input.contains(&0)),
        Err(other) => panic!("{other:?} of {input:?}"),
    }
}

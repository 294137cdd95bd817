//! Where the bytes of large files are, looked for before anything is mounted or written: programs would only
//! see EIO.

use crate::connect::Connection;
use anyhow::{Result, bail};
use pando_blocks::Store;
use pando_cluster::{ClusterMap, ServerInfo};
use rustix::fs::Access;

/// Advice about a block store that cannot be used from here.
pub fn advice(map: &ClusterMap) -> String {
    if pando_blocks::is_bucket(&map.blocks) {
        return "`pando map` shows where it is".into();
    }
    format!(
        "the bytes of files above {} bytes are there. Other users need them in a bucket; clients of other machines there too, or in a folder \
         that all machines share at the place that `pando map` shows (docs/operations.md)",
        map.inline_limit
    )
}

/// Where a server has the bytes of files.
pub fn servers_have(connection: &Connection) -> Option<String> {
    let servers = &connection.client.map().servers;
    let map = |s: &ServerInfo| connection.run(connection.client.map_of(s.id));
    servers.iter().find_map(map).map(|map| map.blocks)
}

/// Makes sure that the block store can be used. If what this machine's map names is not there, but what a
/// server has is (`elsewhere`: the folder of a filesystem of this machine, of which somebody else has a copy
/// of the map), that takes its place in `map`.
pub fn find(map: &mut ClusterMap, elsewhere: impl FnOnce() -> Option<String>, read_only: bool) -> Result<()> {
    let why = match usable(map, &map.blocks, read_only) {
        Ok(()) => return Ok(()),
        Err(why) => why,
    };
    let advice = advice(map);
    let Some(other) = elsewhere().filter(|place| *place != map.blocks) else {
        bail!("cannot use the block store {}: {why}; {advice}", map.blocks);
    };
    match usable(map, &other, read_only) {
        Ok(()) => {
            map.blocks = other;
            Ok(())
        }
        Err(there) => bail!(
            "cannot use the block store {}: {why}; nor {other}, where the servers have it: {there}; {advice}",
            map.blocks
        ),
    }
}

/// Why a store cannot be used from here.
pub fn usable(map: &ClusterMap, place: &str, read_only: bool) -> Result<(), String> {
    Store::open(place, map.block_size, map.fs).map_err(pando_blocks::why)?;
    let Some(folder) = place.strip_prefix("file:").filter(|_| !read_only) else {
        return Ok(());
    };
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|_| "this user may not write there (a mount with `-o ro` need not)".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::FsId;

    #[test]
    fn what_a_server_has_is_used_if_it_is_here() {
        let tmp = tempfile::tempdir().unwrap();
        let place = |name: &str| format!("file:{}", tmp.path().join(name).display());
        let mut map = crate::fsck::tests::map();
        map.blocks = place("copy");
        let whole = |e: anyhow::Error| format!("{e:#}");
        let why = find(&mut map, || None, false).map_err(whole).unwrap_err();
        assert!(why.contains(&place("copy")) && why.contains("bucket"), "{why}");
        let why = find(&mut map, || Some(place("there")), false)
            .map_err(whole)
            .unwrap_err();
        assert!(why.contains(&place("there")), "{why}");
        Store::create(&place("there"), map.fs, None).unwrap();
        find(&mut map, || Some(place("there")), false).unwrap();
        assert_eq!(map.blocks, place("there"));
        map.fs = FsId(map.fs.0 + 1);
        assert!(find(&mut map, || None, false).is_err(), "another filesystem's");
    }
}

//! Coordination of a cluster's servers ([`pando_cluster::Coord`]): in a folder of one machine, or in
//! ZooKeeper.

mod dir;
mod file;
mod place;
mod promise;
mod zk;

pub use dir::DirCoord;
pub use place::{Place, PlaceError, ZkUrl};
pub use zk::{ZkCoord, ZkOptions};

use pando_cluster::Coord;
use pando_types::FsId;
use std::path::Path;
use std::rc::Rc;

/// Coordination of the filesystem `fs`, whose folder on this machine is `dir`. Nothing is asked yet.
pub fn open(place: &Place, dir: &Path, fs: FsId) -> std::io::Result<Rc<dyn Coord>> {
    Ok(match place {
        Place::Dir => Rc::new(DirCoord::open(dir, fs)?),
        Place::ZooKeeper(url) => Rc::new(ZkCoord::open(url, dir, fs, ZkOptions::default())?),
    })
}

//! A store that is opened when bytes are needed: most commands need none, and who has no way to it can look
//! at names all the same.

use crate::Opened;
use pando_data::BlockError;
use pando_types::FsId;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Where it is, and what is opened once it was needed.
#[derive(Clone, Debug)]
pub struct Later {
    place: Place,
    opened: Arc<OnceLock<Opened>>,
}

/// Which store.
#[derive(Clone, Debug)]
pub struct Place {
    /// As the map has it.
    pub place: String,
    /// Of a bucket's blocks, in bytes.
    pub block_size: u32,
    /// Whose it is.
    pub fs: FsId,
    /// A folder that is this filesystem's alone: blocks in there need no mark.
    pub own: Option<PathBuf>,
    /// Advice for the message if it cannot be opened.
    pub advice: String,
}

impl Later {
    pub(crate) fn new(place: Place) -> Later {
        let opened = Arc::default();
        Later { place, opened }
    }

    /// The store. What fails now may be there the next time.
    pub(crate) fn opened(&self) -> Result<&Opened, BlockError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let Place {
            place,
            block_size,
            fs,
            own,
            advice,
        } = &self.place;
        let opened = Opened::new(place, *block_size, *fs, own.as_deref())
            .map_err(|e| BlockError::Device(format!("cannot use {place}: {}; {advice}", crate::why(e))))?;
        Ok(self.opened.get_or_init(|| opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use pando_data::{Blocks, FileKey, Listing, wait};
    use pando_types::{Generation, Ino};

    #[test]
    fn it_is_opened_when_it_is_needed() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("blocks");
        let place = format!("file:{}", path.display());
        let file = FileKey {
            ino: Ino(9),
            generation: Generation(2),
        };
        let store = Store::later(Place {
            place: place.clone(),
            block_size: 4096,
            fs: FsId(1),
            own: None,
            advice: "say where it is".into(),
        });
        for failed in [
            wait(store.check()),
            wait(store.read(file, 0, 0, 1)).map(drop),
            wait(store.write(file, 0, 0, vec![1])),
            wait(store.files(0)).map(drop),
            wait(store.room()).map(drop),
        ] {
            let Err(BlockError::Device(why)) = failed else {
                panic!("it is not there: {failed:?}");
            };
            assert!(why.contains(&place) && why.ends_with("say where it is"), "{why}");
        }
        Store::create(&place, FsId(1), None).unwrap();
        wait(store.check()).expect("it is there now");
        wait(store.clone().write(file, 0, 0, vec![1])).unwrap();
        assert_eq!(wait(store.read(file, 0, 0, 1)), Ok(vec![1]));
    }
}

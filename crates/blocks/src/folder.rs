//! A folder as block store, and its mark.

use crate::mark;
use pando_data::{BlockError, DirBlocks};
use pando_types::FsId;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

fn mark_of(path: &str) -> PathBuf {
    Path::new(path).join(mark::NAME)
}

fn device(path: &Path, e: &std::io::Error) -> BlockError {
    BlockError::Device(format!("{}: {e}", path.display()))
}

fn found(path: &Path) -> Result<Option<Vec<u8>>, BlockError> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(device(path, &e)),
    }
}

/// Writes the mark, whole or not at all, and safe against power failures.
fn write(path: &Path, fs: Option<FsId>) -> Result<(), BlockError> {
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let done = || {
        let mut file = std::fs::File::create(&unfinished)?;
        file.write_all(mark::text(fs).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        match path.parent() {
            Some(folder) => std::fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    done().map_err(|e| device(path, &e))
}

/// Makes the folder, if it is not there, for a new filesystem. `own`: nobody else would use this folder, so
/// what is left of an interrupted attempt counts for nothing.
pub(crate) fn create(path: &str, fs: FsId, own: bool) -> Result<(), BlockError> {
    let made = DirBlocks::create(path)?;
    if !made.is_empty()? {
        return Err(BlockError::Missing(format!(
            "{path} has blocks of another filesystem: say another folder"
        )));
    }
    let mark = mark_of(path);
    if let Some(text) = found(&mark)?.filter(|_| !own) {
        mark::judge(path, &text, Some(fs))?;
    }
    write(&mark, Some(fs))
}

/// Opens what a filesystem has. One that a program before made has no mark yet, and gets one if it is certain
/// that it is the right place: there are blocks, or `own`.
pub(crate) fn open(path: &str, fs: FsId, own: bool) -> Result<DirBlocks, BlockError> {
    let blocks = DirBlocks::open(path)?;
    let mark = mark_of(path);
    let known = match found(&mark)? {
        Some(text) => mark::judge(path, &text, Some(fs))?,
        None if own || !blocks.is_empty()? => false,
        None => {
            return Err(BlockError::Missing(format!(
                "{path} is empty and has no file \"{0}\", which shows that it is the block store: is its disk mounted? If it is, and a program before made this filesystem, which has no large files yet: `printf '{1}' > {path}/{0}`",
                mark::NAME,
                mark::text(Some(fs)).trim_end().to_owned() + "\\n"
            )));
        }
    };
    if !known && let Err(e) = write(&mark, Some(fs)) {
        // Whoever may not write here reads all the same.
        tracing::warn!("the folder of blocks stays without a mark: {e}");
        return Ok(blocks);
    }
    Ok(blocks.marked_by(mark::NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_data::{Blocks, FileKey, wait};
    use pando_types::{Generation, Ino};

    const FILE: FileKey = FileKey {
        ino: Ino(9),
        generation: Generation(2),
    };

    #[test]
    fn a_folder_is_one_filesystems() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("blocks").to_str().unwrap().to_owned();
        let (one, two) = (FsId(1), FsId(2));
        create(&path, one, false).unwrap();
        create(&path, one, false).expect("once more, as after a crash");
        // Before either has a block.
        let Err(BlockError::Missing(why)) = create(&path, two, false) else {
            panic!("a second filesystem in one place");
        };
        assert!(why.contains("say another place"), "{why}");
        assert!(open(&path, two, false).is_err());
        open(&path, one, false).unwrap();
        create(&path, two, true).expect("left of an interrupted attempt");
    }

    #[test]
    fn a_disk_that_is_not_mounted_is_noticed() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("blocks");
        let text = path.to_str().unwrap().to_owned();
        let fs = FsId(1);
        create(&text, fs, false).unwrap();
        let blocks = open(&text, fs, false).unwrap();
        wait(blocks.write(FILE, 0, 0, vec![1])).unwrap();
        let away = tmp.path().join("away");
        std::fs::rename(&path, &away).unwrap();
        std::fs::create_dir(&path).unwrap();
        // Under a program that runs, and one that starts.
        let gone =
            |r: Result<(), BlockError>| matches!(r, Err(BlockError::Device(why)) if why.contains("mounted"));
        assert!(gone(wait(blocks.read(FILE, 0, 0, 1)).map(drop)));
        assert!(gone(wait(blocks.write(FILE, 0, 0, vec![1]))));
        assert!(gone(wait(blocks.present(FILE, 0, u64::MAX)).map(drop)));
        assert!(gone(wait(blocks.remove(FILE, 0, u64::MAX))));
        let Err(BlockError::Missing(why)) = open(&text, fs, false) else {
            panic!("taken for an empty store");
        };
        assert!(why.contains("is its disk mounted?"), "{why}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&away, &path).unwrap();
        assert_eq!(wait(blocks.read(FILE, 0, 0, 1)), Ok(vec![1]));
    }

    #[test]
    fn folders_of_programs_before_get_a_mark() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().to_str().unwrap().to_owned();
        let fs = FsId(7);
        assert!(open(&path, fs, false).is_err(), "empty");
        wait(DirBlocks::open(&path).unwrap().write(FILE, 0, 0, vec![1])).unwrap();
        open(&path, fs, false).unwrap();
        assert!(open(&path, FsId(8), false).is_err());
        let empty = tempfile::tempdir().unwrap();
        open(empty.path().to_str().unwrap(), fs, true).expect("in the cluster's own folder");
    }
}

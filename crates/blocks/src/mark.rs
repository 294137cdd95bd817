//! What shows that a place is a block store, and whose.
//!
//! Without it a folder whose disk is not mounted would be taken for an empty store, and two filesystems that
//! were made in one place would share it.

use pando_data::BlockError;
use pando_types::FsId;

/// The name of the object, and of the file.
pub(crate) const NAME: &str = "pando-blocks";
const FIRST: &str = "A block store of Pando, form 1";
const OF: &str = ", of filesystem ";

/// What is in it.
pub(crate) fn text(fs: Option<FsId>) -> String {
    let whose = fs.map(|fs| format!("{OF}{:032x}", fs.0)).unwrap_or_default();
    format!("{FIRST}{whose}. Without this it is not found.\n")
}

/// Whether the mark `found` at `place` is for `fs`. `Ok(false)`: a program before made it, which did not say
/// for whom.
pub(crate) fn judge(place: &str, found: &[u8], fs: Option<FsId>) -> Result<bool, BlockError> {
    let text = String::from_utf8_lossy(found);
    let Some(rest) = text.strip_prefix(FIRST) else {
        return Err(BlockError::Missing(format!(
            "{place} is not a block store that this program knows: its `{NAME}` says something else"
        )));
    };
    let number = rest.strip_prefix(OF).and_then(|r| r.split('.').next());
    match (number, fs) {
        (None, _) => Ok(false),
        (Some(_), None) => Ok(true),
        (Some(number), Some(fs)) if number == format!("{:032x}", fs.0) => Ok(true),
        (Some(number), Some(fs)) => Err(BlockError::Missing(format!(
            "{place} is the block store of filesystem {number}, and this one is {:032x}: say another place; if that filesystem is gone, remove `{NAME}` there",
            fs.0
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_it_is() {
        let (one, two) = (FsId(0x51), FsId(0x52));
        let made = text(Some(one));
        assert_eq!(judge("x", made.as_bytes(), Some(one)), Ok(true));
        assert_eq!(judge("x", made.as_bytes(), None), Ok(true));
        assert!(judge("x", made.as_bytes(), Some(two)).is_err());
        assert!(judge("x", &made.as_bytes()[..50], Some(one)).is_err());
        assert!(judge("x", b"", Some(one)).is_err());
        let old = b"A block store of Pando, form 1. Without this object it is not found.\n";
        assert_eq!(judge("x", old, Some(one)), Ok(false));
    }
}

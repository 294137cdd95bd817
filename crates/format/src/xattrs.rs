//! Extended attributes of an object: one attachment, and a mark in its record that says that there is one.

use crate::codec::{Blob, Codec, DecodeError, Reader};
use pando_types::{Errno, XATTR_VALUE_MAX, XATTRS_MAX, XattrMode, XattrName};
use std::collections::BTreeMap;

/// What an object has besides its record: so that whoever looks at the record alone knows that there is no
/// more to read. (Its access control lists are in the record, at the end, and only there.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Marks(u64);

impl Marks {
    /// Nothing.
    pub const NONE: Marks = Marks(0);
    /// Extended attributes, in the attachment [`crate::AttachmentKind::Xattrs`].
    pub const XATTRS: Marks = Marks(1);
    /// Of a file without a name: it may get one, because it never had any (`O_TMPFILE`). What lost its last
    /// name may not.
    pub const LINKABLE: Marks = Marks(4);
    /// All that this version understands.
    const KNOWN: u64 = 5;

    /// Whether there are extended attributes.
    pub fn has_xattrs(self) -> bool {
        self.0 & Marks::XATTRS.0 != 0
    }

    /// Whether it may get a first name.
    pub fn is_linkable(self) -> bool {
        self.0 & Marks::LINKABLE.0 != 0
    }

    /// The same of what has a name, or has lost its last.
    pub fn without_linkable(self) -> Marks {
        Marks(self.0 & !Marks::LINKABLE.0)
    }

    /// The same, with or without extended attributes.
    pub fn with_xattrs(self, some: bool) -> Marks {
        Marks(self.0 & !Marks::XATTRS.0 | if some { Marks::XATTRS.0 } else { 0 })
    }
}

/// Access control lists follow the record that is marked so.
const ACLS: u64 = 2;

impl Marks {
    /// As bytes, with the mark that lists follow the record.
    pub(crate) fn put(self, acls: bool, out: &mut Vec<u8>) {
        (self.0 | if acls { ACLS } else { 0 }).put(out);
    }

    /// Marks, and whether lists follow the record.
    pub(crate) fn take(r: &mut Reader<'_>) -> Result<(Marks, bool), DecodeError> {
        let bits = u64::take(r)?;
        // What this version does not know of it would lose when the object is renamed.
        if bits & !(Marks::KNOWN | ACLS) != 0 {
            return Err(DecodeError::Invalid("marks"));
        }
        Ok((Marks(bits & Marks::KNOWN), bits & ACLS != 0))
    }
}

/// The extended attributes of one object. Invariant: at most [`XATTRS_MAX`] bytes of names and values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct XattrSet(BTreeMap<XattrName, Vec<u8>>);

impl XattrSet {
    /// The value of one.
    pub fn get(&self, name: &XattrName) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&XattrName, &[u8])> {
        self.0.iter().map(|(n, v)| (n, v.as_slice()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of names and values.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(n, v)| n.as_bytes().len() + v.len()).sum()
    }

    /// Makes or replaces one: EEXIST or ENODATA as `mode` has it, ENOSPC if all are too large together.
    pub fn set(&mut self, name: &XattrName, value: &[u8], mode: XattrMode) -> Result<(), Errno> {
        let old = self.0.get(name).map(|v| name.as_bytes().len() + v.len());
        match mode {
            XattrMode::Create if old.is_some() => return Err(Errno::Exists),
            XattrMode::Replace if old.is_none() => return Err(Errno::NoData),
            _ => {}
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::ValueTooBig);
        }
        if self.bytes() - old.unwrap_or(0) + name.as_bytes().len() + value.len() > XATTRS_MAX {
            return Err(Errno::NoSpace);
        }
        self.0.insert(name.clone(), value.to_vec());
        Ok(())
    }

    /// Removes one. Whether there was one.
    pub fn remove(&mut self, name: &XattrName) -> bool {
        self.0.remove(name).is_some()
    }
}

impl Codec for XattrSet {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        for (name, value) in &self.0 {
            name.put(out);
            (value.len() as u32).put(out);
            out.extend_from_slice(value);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid("extended attributes");
        let count = u32::take(r)?;
        let mut set = XattrSet::default();
        for _ in 0..count {
            let name = XattrName::take(r)?;
            let value = Blob::take(r)?;
            // By name, each once.
            if set.0.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(invalid);
            }
            set.set(&name, &value.0, XattrMode::Create).map_err(|_| invalid)?;
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> XattrName {
        XattrName::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn modes_and_bounds() {
        let mut set = XattrSet::default();
        let (a, b, c) = (name("user.a"), name("user.b"), name("user.c"));
        assert_eq!(set.set(&a, b"1", XattrMode::Replace), Err(Errno::NoData));
        assert_eq!(set.set(&a, b"1", XattrMode::Create), Ok(()));
        assert_eq!(set.set(&a, b"2", XattrMode::Create), Err(Errno::Exists));
        assert_eq!(set.set(&a, b"2", XattrMode::Any), Ok(()));
        assert_eq!(set.get(&a), Some(b"2".as_slice()));
        let most = vec![0; XATTR_VALUE_MAX];
        assert_eq!(
            set.set(&b, &[&most[..], b"x"].concat(), XattrMode::Any),
            Err(Errno::ValueTooBig)
        );
        assert_eq!(set.set(&b, &most, XattrMode::Any), Ok(()));
        assert_eq!(set.set(&c, &most, XattrMode::Any), Err(Errno::NoSpace));
        // What it replaces does not count.
        assert_eq!(set.set(&b, &most, XattrMode::Any), Ok(()));
        assert_eq!(XattrSet::from_bytes(&set.to_bytes()), Ok(set.clone()));
        assert!(set.remove(&a) && !set.remove(&a));
    }

    #[test]
    fn what_is_out_of_order_or_twice_is_damage() {
        let one = |n: &str| {
            let mut out = Vec::new();
            name(n).put(&mut out);
            Blob(b"v".to_vec()).put(&mut out);
            out
        };
        let two = |a, b| [2u32.to_bytes(), one(a), one(b)].concat();
        assert!(XattrSet::from_bytes(&two("user.a", "user.b")).is_ok());
        assert!(XattrSet::from_bytes(&two("user.b", "user.a")).is_err());
        assert!(XattrSet::from_bytes(&two("user.a", "user.a")).is_err());
        let marks = |bits: u64| Marks::take(&mut Reader::new(&bits.to_bytes()));
        assert_eq!(marks(3), Ok((Marks::XATTRS, true)));
        assert_eq!(marks(4), Ok((Marks::LINKABLE, false)));
        assert!(marks(8).is_err());
    }
}

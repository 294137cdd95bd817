//! Access control lists as bytes. A list that is not well-formed, or longer than lists may be, is none.

use crate::codec::{Codec, DecodeError, Reader};
use crate::{codec_enum, codec_struct};
use pando_types::{Acl, AclKind, Acls, Extended, Mode, Named};

codec_struct!(Named { id, may });
codec_struct!(Mode { perm, umask });
codec_enum!(AclKind { 1 => Access, 2 => Default });

const INVALID: DecodeError = DecodeError::Invalid("access control list");

impl Codec for Extended {
    fn put(&self, out: &mut Vec<u8>) {
        self.users.put(out);
        self.group.put(out);
        self.groups.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let list = Extended {
            users: Codec::take(r)?,
            group: Codec::take(r)?,
            groups: Codec::take(r)?,
        };
        list.check().map_err(|_| INVALID)?;
        Ok(list)
    }
}

impl Codec for Acl {
    fn put(&self, out: &mut Vec<u8>) {
        self.owner.put(out);
        self.users.put(out);
        self.group.put(out);
        self.groups.put(out);
        self.mask.put(out);
        self.other.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let list = Acl {
            owner: Codec::take(r)?,
            users: Codec::take(r)?,
            group: Codec::take(r)?,
            groups: Codec::take(r)?,
            mask: Codec::take(r)?,
            other: Codec::take(r)?,
        };
        list.check().map_err(|_| INVALID)?;
        Ok(list)
    }
}

/// One byte says which there are: most objects have none.
impl Codec for Acls {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.access.is_some()) | u8::from(self.default.is_some()) << 1);
        if let Some(list) = &self.access {
            list.put(out);
        }
        if let Some(list) = &self.default {
            list.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let there = u8::take(r)?;
        if there > 3 {
            return Err(INVALID);
        }
        Ok(Acls {
            access: (there & 1 != 0).then(|| Codec::take(r)).transpose()?,
            default: (there & 2 != 0).then(|| Codec::take(r)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::Errno;

    fn acl(text: &str) -> Acl {
        Acl::parse(text).unwrap()
    }

    #[test]
    fn lists_that_are_none() {
        let good = acl("u::7,u:5:4,u:6:4,g::5,m::6,o::0");
        assert_eq!(Acl::from_bytes(&good.to_bytes()), Ok(good.clone()));
        let spoil: [fn(&mut Acl); 7] = [
            |a| a.mask = None,
            |a| a.owner = 8,
            |a| a.mask = Some(8),
            |a| a.users.swap(0, 1),
            |a| a.users[1].id = 5,
            |a| a.users[0].may = 8,
            |a| a.groups = (0..27).map(|id| Named { id, may: 7 }).collect(),
        ];
        for (i, spoil) in spoil.iter().enumerate() {
            let mut bad = good.clone();
            spoil(&mut bad);
            assert!(bad.check().is_err());
            assert_eq!(Acl::from_bytes(&bad.to_bytes()), Err(INVALID), "{i}");
        }
        let mut longest = good.split().1.unwrap();
        longest.groups = (0..26).map(|id| Named { id, may: 7 }).collect();
        assert_eq!(Extended::from_bytes(&longest.to_bytes()), Ok(longest.clone()));
        longest.groups.push(Named { id: 100, may: 7 });
        assert_eq!(longest.check(), Err(Errno::ValueTooBig));
        assert_eq!(Extended::from_bytes(&longest.to_bytes()), Err(INVALID));
    }

    #[test]
    fn which_there_are() {
        let default = Some(acl("u::7,g::5,o::0"));
        let access = acl("u::7,u:5:4,g::5,o::0").split().1;
        let none = Acls::default();
        assert_eq!(none.to_bytes(), [0]);
        for acls in [
            none,
            Acls {
                access: access.clone(),
                default: None,
            },
            Acls {
                access: None,
                default: default.clone(),
            },
            Acls { access, default },
        ] {
            assert_eq!(Acls::from_bytes(&acls.to_bytes()), Ok(acls));
        }
        assert_eq!(Acls::from_bytes(&[4]), Err(INVALID));
    }
}

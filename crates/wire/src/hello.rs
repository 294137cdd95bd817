//! The hello that opens a connection.
//!
//! Payload of the first frame in either direction: the magic `PNDO`, then `Hello` from the side that connected,
//! `HelloReply` from the side that accepted. The version stands first, so that a hello of any later version can at
//! least be told apart from noise.

use crate::{Hello, HelloReply, PROTOCOL_VERSION, Role};
use pando_format::Codec;
use pando_types::FsId;

const MAGIC: &[u8; 4] = b"PNDO";

impl Hello {
    /// The payload of the first frame.
    pub fn to_payload(&self) -> Vec<u8> {
        payload(self)
    }

    /// Judges what a stranger said first: its role, or what to answer before closing (nothing, if it is not one of us).
    pub fn judge(payload: &[u8], fs: FsId) -> Result<Role, Option<HelloReply>> {
        let body = payload.strip_prefix(MAGIC).ok_or(None)?;
        let version = body.first_chunk().map(|v| u16::from_le_bytes(*v)).ok_or(None)?;
        if version != PROTOCOL_VERSION {
            return Err(Some(HelloReply::WrongVersion(PROTOCOL_VERSION)));
        }
        let hello = Hello::from_bytes(body).map_err(|_| None)?;
        if hello.fs != fs {
            return Err(Some(HelloReply::WrongFilesystem(fs)));
        }
        Ok(hello.role)
    }
}

impl HelloReply {
    /// The payload of the first frame of the answer.
    pub fn to_payload(&self) -> Vec<u8> {
        payload(self)
    }

    /// The answer to our hello; `None` if it is not one.
    pub fn from_payload(payload: &[u8]) -> Option<HelloReply> {
        HelloReply::from_bytes(payload.strip_prefix(MAGIC)?).ok()
    }
}

fn payload(body: &impl Codec) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    body.put(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::ServerId;

    #[test]
    fn hellos_are_judged() {
        let ours = Hello {
            version: PROTOCOL_VERSION,
            fs: FsId(7),
            role: Role::Server(ServerId(3)),
        }
        .to_payload();
        let judge = Hello::judge;
        assert_eq!(judge(&ours, FsId(7)), Ok(Role::Server(ServerId(3))));
        assert_eq!(
            judge(&ours, FsId(8)),
            Err(Some(HelloReply::WrongFilesystem(FsId(8))))
        );
        assert_eq!(judge(&ours[..ours.len() - 1], FsId(7)), Err(None));
        assert_eq!(judge(b"GET / HTTP/1.1", FsId(7)), Err(None));
        assert_eq!(judge(b"", FsId(7)), Err(None));
        // A later version may have any form after the version.
        let later = [b"PNDO".as_slice(), &[9, 0], b"whatever"].concat();
        assert_eq!(
            judge(&later, FsId(7)),
            Err(Some(HelloReply::WrongVersion(PROTOCOL_VERSION)))
        );
        assert_eq!(
            HelloReply::from_payload(&HelloReply::TooMany.to_payload()),
            Some(HelloReply::TooMany)
        );
        assert_eq!(HelloReply::from_payload(b"PNDO"), None);
    }
}

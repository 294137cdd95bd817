//! Cutting frames out of received bytes without copying them first.

use crate::conn::Conn;
use pando_auth::HELLO_MAX;
use pando_wire::{FRAME_MAX, FrameError, cut_frame};

/// As [`cut_frame`], of a connection: by its keys if it has any, and strangers are not given more room than
/// they need.
pub(crate) fn next<'a>(conn: &mut Conn, bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, FrameError> {
    match (&mut conn.keys, conn.stage.is_open()) {
        (Some(keys), true) => keys.receive.cut(bytes),
        (_, true) => cut_frame(bytes, FRAME_MAX),
        (_, false) => cut_frame(bytes, HELLO_MAX),
    }
}

//! TLS between the frames and the socket.

use crate::conn::{Conn, Handshake, Stage};
use crate::inbound::End;
use crate::session::{HANDSHAKE_MAX, Session};
use crate::{PeerError, Reactor, TlsFault};
use pando_auth::HELLO_MAX;
use pando_wire::{Denial, HelloReply, cut_frame};
use std::io::ErrorKind;

impl Reactor {
    /// Takes received bytes, through TLS if that is spoken.
    pub(crate) fn hear(&self, id: u64, conn: &mut Conn, bytes: &[u8]) -> Result<(), End> {
        if !std::mem::replace(&mut conn.begun, true) {
            self.begin(id, conn, bytes)?;
        }
        if conn.stage == Stage::Refused {
            return Ok(());
        }
        let Some(mut tls) = conn.tls.take() else {
            return self.feed(id, conn, bytes);
        };
        let heard = self.decrypt(id, conn, &mut tls, bytes);
        if tls.wants_write() {
            if matches!(heard, Err(End::Tls(_))) {
                // The other side hears why, if it still listens.
                let _ = tls.write(&mut conn.stream);
            }
            self.mark_dirty(id, conn);
        }
        conn.tls = Some(tls);
        heard
    }

    fn decrypt(&self, id: u64, conn: &mut Conn, tls: &mut Session, bytes: &[u8]) -> Result<(), End> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let before = rest.len();
            tls.take(&mut rest).map_err(End::Tls)?;
            if matches!(conn.stage, Stage::Stranger) {
                tls.taken += before - rest.len();
                if tls.taken > HANDSHAKE_MAX {
                    return Err(End::Foul("too long a handshake".into()));
                }
            }
            if matches!(conn.stage, Stage::Stranger) && conn.shown.is_none() {
                conn.shown = tls.shown().map(Box::new);
            }
            let mut fed = Ok(());
            tls.said(&mut |said| {
                fed = self.feed(id, conn, said);
                fed.is_ok()
            });
            fed?;
        }
        // What was to be said waited for the handshake.
        if conn.unsent() > 0 {
            self.mark_dirty(id, conn);
        }
        Ok(())
    }

    /// Looks at the first bytes: whether the other side speaks TLS where we do. Who does not is told in
    /// plain, because that is what it understands; it proves nothing to anybody.
    fn begin(&self, id: u64, conn: &mut Conn, bytes: &[u8]) -> Result<(), End> {
        let speaks_tls = is_tls(bytes);
        match (conn.stage, conn.tls.is_some(), speaks_tls) {
            (Stage::Stranger, true, false) => {
                conn.tls = None;
                conn.misled = true;
            }
            (Stage::Stranger, false, true) => {
                let mode = self.listens_for().unwrap_or_default();
                self.refuse(id, conn, HelloReply::Denied(Denial::WrongWay(mode)));
            }
            (Stage::Greeting(_), true, false) => {
                conn.tls = None;
                let said = cut_frame(bytes, HELLO_MAX).ok().flatten();
                let rejected = match (&mut conn.handshake, said) {
                    (Some(Handshake::Connecting(initiator)), Some((said, _))) => initiator.take(said).err(),
                    _ => None,
                };
                let server = conn.stage.server().unwrap_or_default();
                let address = self.links.borrow().get(&server).map(|l| l.address.clone());
                let address = address.unwrap_or_default();
                return Err(End::Server(match rejected {
                    Some(rejected) => PeerError::of(rejected, address),
                    // Whatever it says, it is not believed without TLS.
                    None => PeerError::Tls {
                        address,
                        why: TlsFault::NotTls,
                    },
                }));
            }
            _ => {}
        }
        Ok(())
    }

    /// Encrypts what is waiting, several frames in one record, and writes it. What does not fit the session's
    /// own buffer (64 KiB) stays as it is.
    pub(crate) fn write_tls(&self, id: u64, conn: &mut Conn) -> Result<(), End> {
        let Some(tls) = &mut conn.tls else { return Ok(()) };
        loop {
            while conn.sent < conn.out.len() {
                let n = tls.say(&conn.out[conn.sent..]);
                if n == 0 {
                    break;
                }
                conn.sent += n;
                self.unsent.set(self.unsent.get() - n);
            }
            if !tls.wants_write() {
                return Ok(());
            }
            match tls.write(&mut conn.stream) {
                Ok(_) => conn.wrote = self.time.get(),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    conn.blocked = true;
                    self.watch(id, conn);
                    return Ok(());
                }
                Err(e) => return Err(End::Quiet(e.to_string())),
            }
        }
    }
}

/// Whether bytes begin a TLS record of a handshake or an alert. No pando hello, and no answer to one, is of
/// such a length.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x15 | 0x16)) && bytes.get(1).is_none_or(|b| *b == 3)
}

//! One connection's TLS: bytes in, bytes out.

use crate::tls::{Configs, fingerprint_of};
use pando_auth::Fingerprint;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{self, BufRead, Write};

/// Most bytes a stranger may send before it is let in: a chain of certificates, and some.
pub(crate) const HANDSHAKE_MAX: usize = 32 * 1024;

/// The host of `host:port`, as a certificate names it.
fn host(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned())
        .map_err(|_| format!("\"{host}\" is no name that a certificate can have"))
}

/// One connection's.
pub(crate) struct Session {
    inner: Connection,
    /// Bytes received before the other side was let in.
    pub taken: usize,
}

impl Session {
    /// Towards a server at `address` (`host:port`).
    pub fn connect(configs: &Configs, address: &str) -> Result<Session, String> {
        let made = ClientConnection::new(configs.connect.clone(), host(address)?);
        let inner = made.map_err(|e| e.to_string())?.into();
        Ok(Session { inner, taken: 0 })
    }

    /// From somebody.
    pub fn accept(configs: &Configs) -> Result<Session, String> {
        let config = configs.accept.clone().ok_or("there is no certificate")?;
        let inner = ServerConnection::new(config).map_err(|e| e.to_string())?.into();
        Ok(Session { inner, taken: 0 })
    }

    /// Takes some of the bytes that were received off their front. What they say comes with
    /// [`Session::said`].
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<(), rustls::Error> {
        let before = bytes.len();
        if let Err(e) = self.inner.read_tls(bytes) {
            return Err(rustls::Error::General(e.to_string()));
        }
        self.inner.process_new_packets()?;
        if bytes.len() == before {
            // It said goodbye, and goes on.
            return Err(rustls::Error::General("bytes after the end".into()));
        }
        Ok(())
    }

    /// What was said, piece by piece: nothing when there is no more for now.
    pub fn said(&mut self, say: &mut dyn FnMut(&[u8]) -> bool) {
        let mut reader = self.inner.reader();
        while let Ok(piece) = reader.fill_buf() {
            let n = piece.len();
            if n == 0 || !say(piece) {
                return;
            }
            reader.consume(n);
        }
    }

    /// Takes some bytes to be sent; how many.
    pub fn say(&mut self, bytes: &[u8]) -> usize {
        if self.inner.is_handshaking() {
            return 0;
        }
        self.inner.writer().write(bytes).unwrap_or(0)
    }

    /// Whether something is to be written to the socket.
    pub fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    /// Writes some of it.
    pub fn write(&mut self, to: &mut dyn Write) -> io::Result<usize> {
        self.inner.write_tls(to)
    }

    /// The public key of the certificate that the other side showed and proved to have.
    pub fn shown(&self) -> Option<Fingerprint> {
        let first = self.inner.peer_certificates()?.first()?;
        fingerprint_of(first).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (address, name) in [
            ("127.0.0.1:7400", "127.0.0.1"),
            ("[::1]:7400", "::1"),
            ("meta-1.example.org:7400", "meta-1.example.org"),
        ] {
            assert_eq!(host(address).map(|h| h.to_str().into_owned()), Ok(name.into()));
        }
        assert!(host("no host:1").is_err());
    }
}

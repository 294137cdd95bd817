//! TLS under connections: certificates, where they come from, and why they are refused.
//!
//! Only version 1.3, without resumption: every connection proves anew who is there. In mode `tls` every
//! connection to a server is one of these; clients show a certificate, servers and operators prove inside
//! that they have the secret.

use pando_auth::Fingerprint;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often the files are looked at, while connections are made.
const LOOK: Duration = Duration::from_millis(500);
/// What is spoken inside: a certificate that also serves other protocols cannot be made to talk to us by
/// those.
const PROTOCOL: &[u8] = b"pando";

/// Certificates and keys as their files have them (PEM).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Pems {
    /// Our certificate and its chain, and the private key. None: we show none.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
    /// Who signs the certificates of those at the other end.
    pub authorities: Vec<u8>,
}

/// Which side of connections a certificate of ours is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A server's: shown to those who connect.
    Accept,
    /// A client's: shown where we connect.
    Connect,
}

/// Why certificates cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TlsError {
    /// They cannot be read.
    #[error("{0}")]
    Read(String),
    /// There is no certificate in a file.
    #[error("there is no certificate (PEM) in the {0} file")]
    NoCertificate(&'static str),
    /// There is no private key in a file.
    #[error("there is no private key (PEM: PKCS#8, SEC1 or PKCS#1) in the key file")]
    NoKey,
    /// They make no sense.
    #[error("{0}")]
    Unusable(String),
}

/// Why two sides do not come together.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TlsFault {
    /// The server's certificate is over, or not valid yet.
    #[error("its certificate is not valid now ({0}); compare the clocks, or renew it (`pando auth renew`)")]
    TheirsNotNow(String),
    /// Nobody we trust signed the server's certificate.
    #[error("its certificate is not signed by an authority we trust (tls/ca.crt, or the client's key file)")]
    TheirsUnknown,
    /// The server's certificate is another host's.
    #[error("its certificate is for another host: {0}")]
    TheirsOther(String),
    /// The server's certificate is wrong in another way.
    #[error("its certificate cannot be accepted: {0}")]
    TheirsBad(String),
    /// Ours is over, or not valid yet.
    #[error("our certificate has expired or is not valid yet; `pando auth rotate` makes another")]
    OursNotNow,
    /// The server does not trust who signed ours.
    #[error("our certificate is not signed by an authority that server trusts (its tls/ca.crt)")]
    OursUnknown,
    /// Ours is wrong in another way.
    #[error("our certificate is not accepted there ({0}); see the server's log")]
    OursBad(String),
    /// It does not speak TLS.
    #[error("it does not speak TLS")]
    NotTls,
    /// Anything else.
    #[error("no TLS connection: {0}")]
    Other(String),
}

impl TlsFault {
    /// As the connecting side sees it.
    pub(crate) fn of(error: &rustls::Error) -> TlsFault {
        use CertificateError as C;
        match error {
            rustls::Error::InvalidCertificate(why) => match why {
                C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. } => {
                    TlsFault::TheirsNotNow(why.to_string())
                }
                C::UnknownIssuer | C::BadSignature => TlsFault::TheirsUnknown,
                C::NotValidForName | C::NotValidForNameContext { .. } => {
                    TlsFault::TheirsOther(why.to_string())
                }
                other => TlsFault::TheirsBad(other.to_string()),
            },
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateExpired => TlsFault::OursNotNow,
                // A forged signature looks like an authority of the same name.
                AlertDescription::UnknownCA | AlertDescription::DecryptError => TlsFault::OursUnknown,
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::AccessDenied => TlsFault::OursBad(alert_word(*alert)),
                other => TlsFault::Other(format!("it says {}", alert_word(*other))),
            },
            rustls::Error::InvalidMessage(_) => TlsFault::NotTls,
            other => TlsFault::Other(other.to_string()),
        }
    }

    /// Whether somebody has to do something before it can work.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, TlsFault::Other(_))
    }
}

/// What connections are made with, as of now.
#[derive(Clone)]
pub(crate) struct Configs {
    pub connect: Arc<ClientConfig>,
    /// None: this process has no certificate to accept with.
    pub accept: Option<Arc<ServerConfig>>,
}

/// Where certificates are read from.
type Source = dyn Fn() -> Result<Pems, String> + Send + Sync;

/// The certificates of a process. They are read again when a connection is made, at most twice a second: what
/// changed is used from then on, without a restart.
pub struct Tls {
    purpose: Purpose,
    source: Box<Source>,
    state: Mutex<State>,
}

struct State {
    pems: Pems,
    configs: Configs,
    looked: Instant,
    /// Why the files of now are not used.
    trouble: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.purpose)
    }
}

impl Tls {
    /// Reads certificates for the first time.
    pub fn new(
        purpose: Purpose,
        source: impl Fn() -> Result<Pems, String> + Send + Sync + 'static,
    ) -> Result<Arc<Tls>, TlsError> {
        let pems = source().map_err(TlsError::Read)?;
        let state = State {
            configs: configs(purpose, &pems)?,
            pems,
            looked: Instant::now(),
            trouble: None,
        };
        Ok(Arc::new(Tls {
            purpose,
            source: Box::new(source),
            state: Mutex::new(state),
        }))
    }

    /// What to make a connection with.
    pub(crate) fn configs(&self) -> Configs {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK {
            state.looked = Instant::now();
            let found = (self.source)().and_then(|pems| {
                if pems == state.pems {
                    return Ok(None);
                }
                let configs = configs(self.purpose, &pems).map_err(|e| e.to_string())?;
                Ok(Some((pems, configs)))
            });
            match found {
                Ok(changed) => {
                    if let Some((pems, configs)) = changed {
                        tracing::info!("certificates were read again");
                        state.pems = pems;
                        state.configs = configs;
                    }
                    state.trouble = None;
                }
                Err(why) => {
                    if state.trouble.as_ref() != Some(&why) {
                        tracing::error!(why, "certificates cannot be read; the last ones stay in use");
                    }
                    state.trouble = Some(why);
                }
            }
        }
        state.configs.clone()
    }

    /// Whether others can connect to this process.
    pub(crate) fn accepts(&self) -> bool {
        self.configs().accept.is_some()
    }
}

/// The fingerprint of the public key of the first certificate of a PEM text.
pub fn fingerprint(pem: &[u8]) -> Result<Fingerprint, TlsError> {
    let all = certificates(pem, "certificate")?;
    let first = all.first().ok_or(TlsError::NoCertificate("certificate"))?;
    fingerprint_of(first).map_err(|e| TlsError::Unusable(e.to_string()))
}

pub(crate) fn fingerprint_of(certificate: &CertificateDer<'_>) -> Result<Fingerprint, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(Fingerprint::of(&parsed.subject_public_key_info()))
}

fn certificates(pem: &[u8], of: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| TlsError::Unusable(format!("the {of} file: {e}")))?;
    if all.is_empty() {
        return Err(TlsError::NoCertificate(of));
    }
    Ok(all)
}

fn configs(purpose: Purpose, pems: &Pems) -> Result<Configs, TlsError> {
    let unusable = |e: rustls::Error| TlsError::Unusable(e.to_string());
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in certificates(&pems.authorities, "authorities")? {
        roots.add(root).map_err(unusable)?;
    }
    let roots = Arc::new(roots);
    let own = match &pems.own {
        None => None,
        Some((chain, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
            Some((certificates(chain, "certificate")?, key))
        }
    };
    let connect = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(roots.clone());
    let (mut connect, accept) = match (purpose, own) {
        (Purpose::Connect, Some((chain, key))) => {
            (connect.with_client_auth_cert(chain, key).map_err(unusable)?, None)
        }
        (Purpose::Accept, Some((chain, key))) => {
            // Servers and operators come without one, and prove inside who they are.
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(|e| TlsError::Unusable(e.to_string()))?;
            let mut accept = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[&TLS13])
                .map_err(unusable)?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain, key)
                .map_err(unusable)?;
            accept.session_storage = Arc::new(NoServerSessionStorage {});
            accept.send_tls13_tickets = 0;
            accept.alpn_protocols = vec![PROTOCOL.to_vec()];
            (connect.with_no_client_auth(), Some(Arc::new(accept)))
        }
        (_, None) => (connect.with_no_client_auth(), None),
    };
    connect.resumption = Resumption::disabled();
    connect.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Configs {
        connect: Arc::new(connect),
        accept,
    })
}

/// An alert by the name that TLS gives it.
fn alert_word(alert: AlertDescription) -> String {
    // debug: the library has the standard's names in this form alone.
    format!("{alert:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_files_are_told_apart() {
        let none = Pems::default();
        let garbage = Pems {
            authorities: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
            ..Pems::default()
        };
        let open = |pems: &Pems| {
            let pems = pems.clone();
            Tls::new(Purpose::Connect, move || Ok(pems.clone())).err()
        };
        assert_eq!(open(&none), Some(TlsError::NoCertificate("authorities")));
        assert!(matches!(open(&garbage), Some(TlsError::Unusable(_))));
        let missing = Tls::new(Purpose::Connect, || Err("no such file".into()));
        assert_eq!(missing.err(), Some(TlsError::Read("no such file".into())));
    }
}

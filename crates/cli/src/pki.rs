//! The filesystem's own authority of mode `tls`: it signs certificates of servers and clients. Whoever has
//! certificates from elsewhere puts those into the same files and needs none of this (`docs/security.md`).

use crate::cluster_dir::{ClusterDir, write_private};
use crate::key_file::KeyFile;
use anyhow::{Context, Result, bail};
use pando_auth::Fingerprint;
use pando_cluster::ClusterMap;
use pando_net::{Pems, Purpose, Tls};
use pando_types::{FsId, IdentityId};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long the authority and the servers' certificates are good. What ends access is a revocation, not a
/// date.
const DAYS: u64 = 3650;
const DAY: Duration = Duration::from_secs(86_400);
/// Certificates are good from a little before they are made: clocks differ.
const SLACK: Duration = Duration::from_secs(3600);

/// The authority, where its key is.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

fn named(name: &str, organization: &str, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, organization);
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    let now = SystemTime::now();
    params.not_before = (now - SLACK).into();
    params.not_after = (now + life).into();
    params
}

/// The same at every time but for its dates, which do not matter for what it signs.
fn authority(fs: FsId) -> CertificateParams {
    let mut params = named(
        &format!("authority of {:032x}", fs.0),
        "pando",
        DAY * (2 * DAYS as u32),
    );
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    /// Makes one, with a certificate for every server of the map.
    pub fn make(dir: &ClusterDir, map: &ClusterMap) -> Result<()> {
        let folder = dir.tls("");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let key = KeyPair::generate()?;
        let certificate = authority(map.fs).self_signed(&key)?;
        write_private(&dir.tls("ca.key"), key.serialize_pem().as_bytes())?;
        std::fs::write(dir.tls("ca.crt"), certificate.pem())
            .with_context(|| format!("cannot write {}", dir.tls("ca.crt").display()))?;
        Authority::open(dir, map.fs)?.certify_servers(dir, map)
    }

    /// The one whose key is in the folder.
    pub fn open(dir: &ClusterDir, fs: FsId) -> Result<Authority> {
        let path = dir.tls("ca.key");
        let text = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "{} is not there: certificates can be made only where the filesystem was made; or say --certificate FILE to \
                 let one from elsewhere in",
                path.display()
            ),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let key = KeyPair::from_pem(&text).with_context(|| format!("{} is no key", path.display()))?;
        let certificate = std::fs::read_to_string(dir.tls("ca.crt"))
            .with_context(|| format!("cannot read {}", dir.tls("ca.crt").display()))?;
        Ok(Authority {
            issuer: Issuer::new(authority(fs), key),
            certificate,
        })
    }

    /// Makes new certificates for all servers. They use them within a second.
    pub fn certify_servers(&self, dir: &ClusterDir, map: &ClusterMap) -> Result<()> {
        for server in &map.servers {
            let host = server.address.rsplit_once(':').map_or("", |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let mut params = named(&format!("server {}", server.id), "pando", DAY * DAYS as u32);
            params.subject_alt_names = CertificateParams::new([host.to_owned()])?.subject_alt_names;
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &self.issuer)?;
            let text = certificate.pem() + &key.serialize_pem();
            write_private(&dir.tls(&format!("server-{}.pem", server.id)), text.as_bytes())?;
        }
        Ok(())
    }

    /// A certificate for an identity's key, and who knows the servers by.
    pub fn certify(&self, key: &KeyPair, id: IdentityId, name: &str, life: Duration) -> Result<String> {
        let mut params = named(name, &format!("pando identity {id}"), life);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }

    /// Who servers are known by, for a client's file: all that the folder trusts.
    pub fn certificates(&self) -> &str {
        &self.certificate
    }
}

/// What an identity's record holds of a key.
pub fn fingerprint(key: &KeyPair) -> Fingerprint {
    Fingerprint::of(&key.subject_public_key_info())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// How a server shows who it is, and knows others.
pub fn of_server(dir: &ClusterDir, id: u16) -> Result<Arc<Tls>> {
    let (authorities, own, shared) = (
        dir.tls("ca.crt"),
        dir.tls(&format!("server-{id}.pem")),
        dir.tls("server.pem"),
    );
    let source = move || {
        let own = if own.exists() { read(&own)? } else { read(&shared)? };
        Ok(Pems {
            own: Some((own.clone(), own)),
            authorities: read(&authorities)?,
        })
    };
    Tls::new(Purpose::Accept, source).with_context(|| format!("certificates in {}", dir.tls("").display()))
}

/// How an operator knows servers; it proves inside that it has the secret.
pub fn of_operator(dir: &ClusterDir) -> Result<Arc<Tls>> {
    let authorities = dir.tls("ca.crt");
    let source = move || {
        Ok(Pems {
            own: None,
            authorities: read(&authorities)?,
        })
    };
    Tls::new(Purpose::Connect, source).with_context(|| format!("certificates in {}", dir.tls("").display()))
}

/// How a client with this file shows who it is. The file may be replaced by another of the same identity.
pub fn of_client(path: PathBuf, id: IdentityId) -> Result<Arc<Tls>> {
    let shown = path.display().to_string();
    let source = move || {
        let file = KeyFile::load(&path).map_err(|e| format!("{e:#}"))?;
        if file.id() != id {
            return Err(format!(
                "{} is another identity's now; mount again to be that one",
                path.display()
            ));
        }
        file.pems(&path).map_err(|e| format!("{e:#}"))
    };
    Tls::new(Purpose::Connect, source).with_context(|| shown)
}

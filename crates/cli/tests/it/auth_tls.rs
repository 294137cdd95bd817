//! Mode `tls` on real servers: certificates made here and brought from elsewhere, refusals and what is said
//! about them, revocation, rotation, and renewal without a restart.
#![allow(clippy::unwrap_used)]

use crate::cluster::Cluster;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::ops::Deref;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A little more than certificates in use may be older than their files.
const READ_AGAIN: Duration = Duration::from_millis(1200);

/// A cluster of mode `tls` with a file.
struct Certified(Cluster);

impl Certified {
    fn start(servers: usize) -> Certified {
        let cluster = Cluster::start_with(servers, "sync", &["--auth", "tls"]);
        std::fs::write(cluster.path("text"), "hello\n").unwrap();
        let text = cluster.path("text").display().to_string();
        cluster.run(&["mkdir", "/people"]);
        cluster.run(&["put", &text, "/people/file"]);
        Certified(cluster)
    }

    /// Who must not get in must hear why, and long before anybody who waits for servers gives up.
    #[track_caller]
    fn refused(&self, key: &str, why: &str) {
        let begin = Instant::now();
        let out = self
            .pando(&["--wait", "60", "--key", key, "ls", "/"])
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "{key} is let in");
        assert!(complaint.contains(why), "{complaint}");
        assert!(begin.elapsed() < Duration::from_secs(30), "{complaint}");
    }

    #[track_caller]
    fn logged(&self, server: usize, what: &str) {
        let log = std::fs::read_to_string(self.0.path(&format!("run/server-{server}.log"))).unwrap();
        assert!(log.contains(what), "{what:?} is not in {log}");
    }

    /// Which processes the servers are.
    fn pids(&self, servers: usize) -> Vec<String> {
        let pid = |s| std::fs::read_to_string(self.0.path(&format!("run/server-{s}.lock"))).unwrap();
        (0..servers).map(pid).collect()
    }
}

impl Deref for Certified {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

#[test]
fn a_cluster_with_certificates_works_like_one_with_keys() {
    let c = Certified::start(3);
    assert_eq!(c.run(&["cat", "/people/file"]), "hello\n");
    assert!(c.run(&["status"]).contains("3 of 3 servers up"));
    c.run(&["fsck"]);
    let inside = c.add("inside", &["--any-uid", "--subtree", "/people"]);
    assert_eq!(c.with(&inside, &["ls", "/"]), Ok("file\n".into()));
    let reader = c.add("reader", &["--any-uid", "--read-only"]);
    assert!(
        c.with(&reader, &["mkdir", "/x"])
            .unwrap_err()
            .contains("read-only")
    );
    // Everything is there again after a restart of all.
    c.kill_all();
    c.up();
    assert_eq!(c.with(&inside, &["cat", "/file"]), Ok("hello\n".into()));
    // Nobody but its owner can read what proves anything.
    for name in [
        "client.key",
        "inside",
        "tls/ca.key",
        "tls/server-0.pem",
        "server-0",
        "run",
    ] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(c.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o77, 0, "{name}");
    }
}

#[test]
fn who_is_not_let_in_hears_why_and_so_does_the_log() {
    let c = Certified::start(1);
    let brief = c.add("brief", &["--any-uid", "--lifetime", "1s"]);
    let nobody = c.add("nobody", &["--any-uid"]);
    c.run(&["auth", "revoke", "nobody"]);
    std::thread::sleep(Duration::from_secs(3));
    c.refused(&brief, "has expired");
    c.logged(0, "certificate expired");
    c.refused(&nobody, "pando auth");
    c.logged(0, "is not known, or was revoked");
    // A file of another filesystem, one that is damaged, one without a certificate.
    let other = Cluster::start_with(1, "sync", &["--auth", "tls"]);
    c.refused(
        &other.path("client.key").display().to_string(),
        "is for filesystem",
    );
    let mine: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(c.path("client.key")).unwrap()).unwrap();
    let theirs: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(other.path("client.key")).unwrap()).unwrap();
    let change = |name: &str, field: &str, value: serde_json::Value| {
        let mut file = mine.clone();
        file[field] = value;
        std::fs::write(c.path(name), file.to_string()).unwrap();
        c.file(name)
    };
    let pem = "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n";
    c.refused(&change("garbage", "certificate", pem.into()), "garbage");
    c.refused(
        &change("absent", "certificate", serde_json::Value::Null),
        "has no certificate",
    );
    c.refused(
        &change("half", "private_key", theirs["private_key"].clone()),
        "half",
    );
    c.refused(
        &change("unbelieving", "authorities", theirs["authorities"].clone()),
        "not signed by an authority we trust",
    );
    let mut foreign = mine.clone();
    foreign["certificate"] = theirs["certificate"].clone();
    foreign["private_key"] = theirs["private_key"].clone();
    std::fs::write(c.path("foreign"), foreign.to_string()).unwrap();
    c.refused(
        &c.file("foreign"),
        "not signed by an authority that server trusts",
    );
    c.logged(0, "UnknownIssuer");
    // What makes no sense is said.
    let plain = Cluster::start(1, "sync");
    let complaint = plain.fail(&["auth", "renew"]);
    assert!(complaint.contains("--auth tls"), "{complaint}");
}

/// A program at work on connections that stand, which writes down what was acknowledged.
struct Busy {
    child: Child,
    log: std::path::PathBuf,
}

impl Busy {
    fn start(c: &Certified, key: &str) -> Busy {
        let log = c.path("busy.log");
        let work = [
            "hammer",
            "run",
            "--tasks",
            "4",
            "--seconds",
            "600",
            "--name",
            "busy",
        ];
        let child = c
            .pando(&[&["--key", key], &work[..]].concat())
            .stdout(std::fs::File::create(&log).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Busy { child, log }
    }

    fn acknowledged(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.starts_with("A ")).count()
    }

    /// Waits until more was acknowledged than `before`.
    fn goes_on(&self, before: usize) -> bool {
        let begin = Instant::now();
        while self.acknowledged() <= before {
            if begin.elapsed() > Duration::from_secs(20) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn revoked_certificates_end_at_once_and_replaced_ones_after_their_grace() {
    let c = Certified::start(2);
    let laptop = c.add("laptop", &["--any-uid"]);
    let old = c.file("old");
    std::fs::copy(&laptop, &old).unwrap();
    // During the grace period both are good, and then the newer one only, though neither has expired.
    c.run(&["auth", "rotate", "laptop", "--out", &laptop]);
    c.with(&old, &["ls", "/"]).unwrap();
    c.with(&laptop, &["ls", "/"]).unwrap();
    let older = c.file("older");
    std::fs::copy(&laptop, &older).unwrap();
    c.run(&["auth", "rotate", "laptop", "--grace", "0s", "--out", &laptop]);
    c.refused(&old, "pando auth");
    c.refused(&older, "pando auth");
    c.with(&laptop, &["ls", "/"]).unwrap();
    // Somebody is at work. Its key is replaced under it: it reads the new one and goes on, without an outage.
    let busy = Busy::start(&c, &laptop);
    assert!(busy.goes_on(20));
    c.run(&["auth", "rotate", "laptop", "--grace", "1s", "--out", &laptop]);
    std::thread::sleep(Duration::from_secs(3));
    assert!(
        busy.goes_on(busy.acknowledged() + 20),
        "it has the new certificate"
    );
    // Its identity ends: nothing more is done for it from that moment on, though its connections stood.
    c.run(&["auth", "revoke", "laptop"]);
    // What was answered before may still be on its way to the log, for as long as a busy machine takes.
    let mut quiet = 0;
    for _ in 0..10 {
        let done = busy.acknowledged();
        std::thread::sleep(Duration::from_secs(1));
        quiet = if busy.acknowledged() == done { quiet + 1 } else { 0 };
        if quiet == 2 {
            break;
        }
    }
    assert_eq!(quiet, 2, "it goes on working");
    c.refused(&laptop, "pando auth");
}

/// An authority that is not the cluster's.
fn corporate() -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "corporate");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

#[test]
fn certificates_from_elsewhere_are_taken_without_a_restart() {
    let c = Certified::start(2);
    let before = c.pids(2);
    let (issuer, authority) = corporate();
    let issue = |host: &str, purpose| {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        (
            params.signed_by(&key, &issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    };
    let client = issue("laptop", ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(c.path("laptop.crt"), &client.0).unwrap();
    std::fs::write(c.path("laptop.pem"), &client.1).unwrap();
    let given = [
        "--certificate",
        &c.file("laptop.crt"),
        "--private-key",
        &c.file("laptop.pem"),
    ];
    let laptop = c.add("laptop", &[&["--any-uid"][..], &given].concat());
    // It is known, but who signed it is not.
    c.refused(&laptop, "not signed by an authority that server trusts");
    // Both authorities for a while, then the servers change over, then the old one goes.
    let own = std::fs::read_to_string(c.path("tls/ca.crt")).unwrap();
    std::fs::write(c.path("tls/ca.crt"), own.clone() + &authority).unwrap();
    std::thread::sleep(READ_AGAIN);
    c.with(&laptop, &["ls", "/"]).unwrap();
    for server in 0..2 {
        let (certificate, key) = issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        std::fs::write(c.path(&format!("tls/server-{server}.pem")), certificate + &key).unwrap();
    }
    std::thread::sleep(READ_AGAIN);
    // This machine's own client knows servers by the old authority only.
    c.refused(&c.file("client.key"), "not signed by an authority we trust");
    std::fs::remove_file(c.path("tls/ca.key")).unwrap();
    std::fs::write(c.path("tls/ca.crt"), &authority).unwrap();
    let mut file: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&laptop).unwrap()).unwrap();
    file["authorities"] = c.file("tls/ca.crt").into();
    std::fs::write(&laptop, file.to_string()).unwrap();
    std::thread::sleep(READ_AGAIN);
    assert_eq!(c.with(&laptop, &["cat", "/people/file"]), Ok("hello\n".into()));
    c.with(&laptop, &["mv", "/people", "/folk"]).unwrap();
    assert_eq!(c.pids(2), before, "no server was restarted");
    let complaint = c.fail(&["auth", "add", "x", "--any-uid", "--out", &c.file("x")]);
    assert!(complaint.contains("--certificate"), "{complaint}");
    let twice = [
        "auth",
        "add",
        "x",
        "--any-uid",
        "--out",
        &c.file("x"),
        "--certificate",
    ];
    let complaint = c.fail(&[&twice[..], &[&c.file("laptop.crt")]].concat());
    assert!(complaint.contains("another identity has"), "{complaint}");
}

#[test]
fn servers_get_new_certificates_without_a_restart() {
    let c = Certified::start(2);
    let before = c.pids(2);
    let served = std::fs::read_to_string(c.path("tls/server-0.pem")).unwrap();
    // Damaged: the last good one stays in use, and the log says so.
    std::fs::write(c.path("tls/server-0.pem"), "nonsense").unwrap();
    std::thread::sleep(READ_AGAIN);
    assert_eq!(c.run(&["cat", "/people/file"]), "hello\n");
    c.run(&["ls", "/"]);
    c.logged(0, "the last ones stay in use");
    c.run(&["auth", "renew"]);
    assert_ne!(
        std::fs::read_to_string(c.path("tls/server-0.pem")).unwrap(),
        served
    );
    std::thread::sleep(READ_AGAIN);
    assert_eq!(c.run(&["cat", "/people/file"]), "hello\n");
    c.run(&["status"]);
    assert_eq!(c.pids(2), before);
}

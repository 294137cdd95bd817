//! Holds the model against the kernel's own filesystem: the same calls, by the same users, must give the same
//! errors, the same tree, and change the same times. As root it acts as several users; else only as the one
//! it runs as.

mod kernel;
mod oracle;
mod steps;

use kernel::{Kernel, Seen, Times};
use oracle::{Oracle, Stop};
use pando_types::{Cred, Errno};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use steps::{Call, Step};

type Tree = BTreeMap<String, (Seen, Times)>;

fn callers() -> Vec<Cred> {
    let me = rustix::process::geteuid();
    if !me.is_root() {
        let groups = rustix::process::getgroups().expect("groups");
        return vec![Cred {
            uid: me.as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|g| g.as_raw()).collect(),
        }];
    }
    let user = |uid, gid, groups: &[u32]| Cred {
        uid,
        gid,
        groups: groups.to_vec(),
    };
    vec![
        Cred::root(),
        user(1000, 1000, &[]),
        user(1001, 1001, &[1000]),
        user(1002, 1000, &[2000]),
    ]
}

/// Which objects that were there before have another mtime, another ctime.
fn changed(before: &Tree, after: &Tree) -> BTreeMap<String, (bool, bool)> {
    let old: BTreeMap<u64, &Times> = before.values().map(|(_, t)| (t.id, t)).collect();
    let differs = |(path, (_, t)): (&String, &(Seen, Times))| {
        let o = old.get(&t.id)?;
        Some((path.clone(), (o.mtime != t.mtime, o.ctime != t.ctime)))
    };
    after.iter().filter_map(differs).collect()
}

/// In a sticky directory the kernel refuses open(O_CREAT) of what others own, beyond POSIX: of symlinks
/// always, where it would find ELOOP a moment later; of files if so configured (fs.protected_regular).
fn is_protected(call: &Call, expected: Result<(), Errno>) -> bool {
    let files = || std::fs::read_to_string("/proc/sys/fs/protected_regular").is_ok_and(|s| s.trim() != "0");
    matches!(call, Call::Create(..)) && (expected == Err(Errno::Loop) || expected.is_ok() && files())
}

fn run(
    callers: &[Cred],
    steps: &[Step],
    fine: bool,
    xattrs: bool,
    met: &RefCell<BTreeSet<String>>,
) -> Result<(), TestCaseError> {
    let kernel = Kernel::new();
    let mut oracle = Oracle::new(kernel.root_owner(), xattrs);
    let mut before = (oracle.walk(), kernel.walk());
    for (i, Step { caller, call }) in steps.iter().enumerate() {
        let cred = &callers[*caller];
        let expected: Result<(), Errno> = match oracle.call(cred, call) {
            Ok(_) => Ok(()),
            Err(Stop::Errno(e)) => Err(e),
            Err(Stop::Skip) => continue,
        };
        let got = kernel.call(cred, call);
        if got == Err(Errno::Access) && is_protected(call, expected) {
            continue;
        }
        let fail = |what: &str, model: String, kernel: String| {
            let steps = &steps[..=i];
            TestCaseError::fail(format!(
                "{what}\nmodel:  {model}\nkernel: {kernel}\nafter {steps:#?}"
            ))
        };
        if got != expected {
            return Err(fail("result", format!("{expected:?}"), format!("{got:?}")));
        }
        let after = (oracle.walk(), kernel.walk());
        let plain = |t: &Tree| -> Vec<(String, Seen)> {
            t.iter().map(|(p, (s, _))| (p.clone(), s.clone())).collect()
        };
        if plain(&after.0) != plain(&after.1) {
            return Err(fail(
                "tree",
                format!("{:?}", plain(&after.0)),
                format!("{:?}", plain(&after.1)),
            ));
        }
        let times = (changed(&before.0, &after.0), changed(&before.1, &after.1));
        if fine && times.0 != times.1 {
            return Err(fail(
                "(mtime, ctime) changed",
                format!("{:?}", times.0),
                format!("{:?}", times.1),
            ));
        }
        before = after;
        let kind = format!("{call:?}");
        let kind = kind.split('(').next().unwrap_or_default();
        met.borrow_mut().insert(match expected {
            Ok(()) => format!("{kind} ok"),
            Err(e) => format!("{kind} {e:?}"),
        });
    }
    Ok(())
}

/// What must have been met: a test that puts nothing at risk proves nothing.
fn must_be_met(users: usize, xattrs: bool) -> Vec<&'static str> {
    let mut all = vec![
        "Rename ok",
        "Rename NotFound",
        "Rename Exists",
        "Rename Invalid",
        "Rename NotEmpty",
        "Rename NotDir",
        "Rename IsDir",
        "Rmdir NotEmpty",
        "Rmdir NotDir",
        "Unlink IsDir",
        "Create IsDir",
        "Create Exists",
        "Mkdir Exists",
        "Truncate ok",
        "Write ok",
    ];
    if users == 1 {
        return all;
    }
    all.extend([
        "Rename Access",
        "Rename Perm",
        "Unlink Perm",
        "Unlink Access",
        "Chmod Perm",
        "Chown Perm",
        "Chown ok",
        "Utimens Perm",
        "Utimens Access",
        "Open Access",
        "List Access",
        "Truncate Access",
        "Mknod ok",
        "Mknod Perm",
    ]);
    if xattrs {
        all.extend([
            "SetXattr ok",
            "SetXattr Access",
            "SetXattr Perm",
            "SetXattr Exists",
            "SetXattr NoData",
            "GetXattr ok",
            "GetXattr NoData",
            "GetXattr Access",
            "RemoveXattr ok",
            "SetAcl ok",
            "SetAcl Perm",
            "SetAcl Access",
            "SetAcl Unsupported",
        ]);
    }
    all
}

#[test]
fn the_model_does_what_linux_does() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let callers = callers();
    let fine = Kernel::new().has_fine_times();
    let xattrs = Kernel::new().has_xattrs();
    let met = RefCell::new(BTreeSet::new());
    let mut config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1000;
    }
    let mut missing = must_be_met(callers.len(), xattrs);
    // The rarest is met by one case in some hundred: chance alone may take more than one round.
    for _ in 0..20 {
        // A runner that has had its cases runs no more.
        let mut runner = TestRunner::new(config.clone());
        if let Err(e) = runner.run(&steps::steps(callers.len()), |s| {
            run(&callers, &s, fine, xattrs, &met)
        }) {
            panic!("{e}");
        }
        missing.retain(|m| !met.borrow().contains(*m));
        if missing.is_empty() {
            break;
        }
    }
    let met = met.into_inner();
    println!("{} users, times compared: {fine}, met: {met:#?}", callers.len());
    assert!(missing.is_empty(), "never met: {missing:?}");
}

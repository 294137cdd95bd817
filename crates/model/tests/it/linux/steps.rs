//! What is done to both trees: operations on paths, as a program would call them.

use pando_model::RenameMode;
use pando_types::{Access, AclKind, FileKind, Mode, Name, Perm, TimeChange, Timestamp, XattrMode};
use proptest::prelude::*;

/// One to three of the names.
#[derive(Clone, Debug)]
pub struct Path(pub Vec<&'static str>);

impl Path {
    pub fn names(&self) -> Vec<Name> {
        self.0
            .iter()
            .map(|n| Name::new(n.as_bytes()).expect("valid"))
            .collect()
    }

    pub fn text(&self) -> String {
        self.0.join("/")
    }
}

#[derive(Clone, Debug)]
pub enum Call {
    Stat(Path),
    List(Path),
    ReadLink(Path),
    Open(Path, Access),
    Create(Path, Perm, bool, Access),
    Symlink(Path, &'static str),
    Mkdir(Path, Perm),
    Rmdir(Path),
    Unlink(Path),
    Chmod(Path, Perm),
    Chown(Path, Option<u32>, Option<u32>),
    /// By path: opened for writing by the caller.
    Truncate(Path, u64),
    /// Through a handle that root opened, so that only the caller's identity counts.
    TruncateHandle(Path, u64),
    /// Bytes and size, through such a handle.
    Write(Path, &'static str, u64),
    Utimens(Path, Option<TimeChange>, Option<TimeChange>),
    Rename(Path, Path, RenameMode),
    Link(Path, Path),
    /// A special file; of a device, the number of `/dev/null`.
    Mknod(Path, FileKind, Perm),
    GetXattr(Path, &'static str),
    SetXattr(Path, &'static str, XattrMode),
    RemoveXattr(Path, &'static str),
    /// A list as text; none: removed.
    SetAcl(Path, AclKind, Option<&'static str>),
}

/// With a umask, where the bits are such: it counts where there is no default list.
pub fn masked(perm: Perm) -> Mode {
    let umask = Perm::new(if perm.bits() & 7 == 7 { 0o027 } else { 0 });
    Mode { perm, umask }
}

/// The attribute a list is kept in.
pub fn list_name(kind: AclKind) -> &'static str {
    match kind {
        AclKind::Access => "system.posix_acl_access",
        AclKind::Default => "system.posix_acl_default",
    }
}

fn list() -> impl Strategy<Value = Option<&'static str>> {
    let lists = [
        "u::7,g::7,o::7",
        "u::7,g::5,o::0",
        "u::6,g::6,m::4,o::0",
        "u::7,u:1000:7,g::0,m::7,o::0",
        "u::7,u:1001:0,g::7,m::7,o::7",
        "u::7,u:1002:7,u:1001:5,g::5,m::5,o::5",
        "u::7,g::0,g:1000:7,m::7,o::0",
        "u::7,g::4,g:1000:3,g:2000:1,m::7,o::7",
        "u::7,u:1000:7,g::7,g:2000:0,m::0,o::5",
        "u::0,u:0:0,u:1001:7,g::7,g:1001:7,m::3,o::1",
    ];
    prop_oneof![1 => Just(None), 6 => proptest::sample::select(lists.to_vec()).prop_map(Some)]
}

fn list_kind() -> impl Strategy<Value = AclKind> {
    prop_oneof![Just(AclKind::Access), Just(AclKind::Default)]
}

/// What an attribute is set to: capabilities must look like some, in a kernel's eyes.
pub fn value(attr: &str, mode: XattrMode) -> Vec<u8> {
    if attr == "security.capability" {
        let mut value = vec![0; 20];
        value[3] = 2;
        return value;
    }
    format!("{attr} {mode:?}").into_bytes()
}

#[derive(Clone, Debug)]
pub struct Step {
    /// Index into the callers.
    pub caller: usize,
    pub call: Call,
}

fn path() -> impl Strategy<Value = Path> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    prop_oneof![
        4 => name().prop_map(|n| Path(vec![n])),
        4 => (name(), name()).prop_map(|(a, b)| Path(vec![a, b])),
        2 => (name(), name(), name()).prop_map(|(a, b, c)| Path(vec![a, b, c])),
    ]
}

fn perm() -> impl Strategy<Value = Perm> {
    let special = [
        0o1777, 0o2777, 0o3777, 0o755, 0o700, 0o555, 0o333, 0o666, 0o6755, 0o6777, 0o2666, 0o2755, 0o4711,
        0o070, 0o711, 0,
    ];
    prop_oneof![2 => Just(0o777), 3 => proptest::sample::select(special.to_vec())].prop_map(Perm::new)
}

fn want() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::READ),
        Just(Access::WRITE),
        Just(Access::READ.and(Access::WRITE))
    ]
}

fn time() -> impl Strategy<Value = Option<TimeChange>> {
    let given = |secs| Some(TimeChange::To(Timestamp { secs, nanos: 7 }));
    prop_oneof![
        1 => Just(None),
        3 => Just(Some(TimeChange::Now)),
        1 => Just(given(1_000)),
        1 => Just(given(4_000_000_000)),
    ]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(3), Just(5000)]
}

fn mode() -> impl Strategy<Value = RenameMode> {
    prop_oneof![4 => Just(RenameMode::Replace), 1 => Just(RenameMode::NoReplace), 3 => Just(RenameMode::Exchange)]
}

fn attr() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("user.a"),
        2 => Just("user.b"),
        1 => Just("trusted.t"),
        1 => Just("security.s"),
        1 => Just("security.capability"),
    ]
}

fn xattr_mode() -> impl Strategy<Value = XattrMode> {
    prop_oneof![3 => Just(XattrMode::Any), 1 => Just(XattrMode::Create), 1 => Just(XattrMode::Replace)]
}

fn special() -> impl Strategy<Value = FileKind> {
    prop_oneof![3 => Just(FileKind::Fifo), 1 => Just(FileKind::Socket), 2 => Just(FileKind::CharDevice)]
}

fn call() -> impl Strategy<Value = Call> {
    let uid = || proptest::option::of(prop_oneof![Just(0), Just(1000), Just(1001)]);
    let gid = || proptest::option::of(prop_oneof![Just(0), Just(1000), Just(1001), Just(2000)]);
    prop_oneof![
        2 => path().prop_map(Call::Stat),
        2 => path().prop_map(Call::List),
        1 => path().prop_map(Call::ReadLink),
        2 => (path(), want()).prop_map(|(p, w)| Call::Open(p, w)),
        6 => (path(), perm(), any::<bool>(), want()).prop_map(|(p, m, x, w)| Call::Create(p, m, x, w)),
        1 => (path(), prop_oneof![Just("x"), Just("no/such/place")]).prop_map(|(p, t)| Call::Symlink(p, t)),
        10 => (path(), perm()).prop_map(|(p, m)| Call::Mkdir(p, m)),
        3 => path().prop_map(Call::Rmdir),
        3 => path().prop_map(Call::Unlink),
        4 => (path(), perm()).prop_map(|(p, m)| Call::Chmod(p, m)),
        4 => (path(), uid(), gid()).prop_map(|(p, u, g)| Call::Chown(p, u, g)),
        2 => (path(), size()).prop_map(|(p, s)| Call::Truncate(p, s)),
        2 => (path(), size()).prop_map(|(p, s)| Call::TruncateHandle(p, s)),
        2 => (path(), prop_oneof![Just(""), Just("q"), Just("xyz")], size()).prop_map(|(p, b, s)| Call::Write(p, b, s)),
        3 => (path(), time(), time()).prop_map(|(p, a, m)| Call::Utimens(p, a, m)),
        5 => (path(), path()).prop_map(|(a, b)| Call::Link(a, b)),
        10 => (path(), path(), mode()).prop_map(|(a, b, m)| Call::Rename(a, b, m)),
        2 => (path(), special(), perm()).prop_map(|(p, k, m)| Call::Mknod(p, k, m)),
        2 => (path(), attr()).prop_map(|(p, a)| Call::GetXattr(p, a)),
        6 => (path(), attr(), xattr_mode()).prop_map(|(p, a, m)| Call::SetXattr(p, a, m)),
        2 => (path(), attr()).prop_map(|(p, a)| Call::RemoveXattr(p, a)),
        8 => (path(), list_kind(), list()).prop_map(|(p, k, l)| Call::SetAcl(p, k, l)),
    ]
}

/// Something of some owner with some bits, made by the first caller (root, if the test may).
fn furnish(path: Path) -> impl Strategy<Value = Vec<Step>> {
    let uid = prop_oneof![Just(0), Just(1000), Just(1001), Just(1002)];
    let gid = prop_oneof![Just(0), Just(1000), Just(1001), Just(2000)];
    (any::<bool>(), perm(), uid, gid).prop_map(move |(dir, perm, uid, gid)| {
        let make = match dir || path.0.len() == 1 {
            true => Call::Mkdir(path.clone(), perm),
            false => Call::Create(path.clone(), perm, true, Access::READ),
        };
        let own = Call::Chown(path.clone(), Some(uid), Some(gid));
        [make, own, Call::Chmod(path.clone(), perm)]
            .map(|call| Step { caller: 0, call })
            .to_vec()
    })
}

/// First a tree in which users are in each other's way, then anything by anyone.
pub fn steps(callers: usize) -> impl Strategy<Value = Vec<Step>> {
    let places: [&[_]; 8] = [
        &["a"],
        &["b"],
        &["a", "a"],
        &["a", "b"],
        &["a", "b", "a"],
        &["b", "a"],
        &["b", "b"],
        &["b", "a", "c"],
    ];
    let furnished: Vec<_> = places.iter().map(|p| furnish(Path(p.to_vec()))).collect();
    let step = (0..callers, call()).prop_map(|(caller, call)| Step { caller, call });
    (furnished, proptest::collection::vec(step, 1..60)).prop_map(|(furnished, steps)| {
        let mut all = furnished.concat();
        all.extend(steps);
        all
    })
}

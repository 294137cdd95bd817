//! Commands on files, named and behaving as those of coreutils.

mod acl;
mod attrs;
mod cat;
mod copy;
mod df;
mod du;
mod dump;
mod find;
mod get;
mod lists;
mod ln;
mod load;
mod ls;
mod mkdir;
mod mknod;
mod mv;
mod pages;
mod put;
mod rm;
mod stat;
mod tree;
mod xattr;

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::progress::Progress;
use crate::text;
use anyhow::Result;
use clap::Subcommand;
pub use copy::data_sync;
pub use find::as_options;
use pando_client::Client;
use pando_env::{Env, World};
use pando_net::Options;
use pando_types::{Cred, Errno, Mode, Perm};
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// Requests in flight of commands that work on many files.
const CREW: usize = 48;
/// Directories that are read at once by commands that look at whole trees.
const WALKERS: usize = 16;
/// A command that waits longer than this for a server says so.
const SILENCE: Duration = Duration::from_secs(2);

/// Commands on files. Paths are inside the filesystem and absolute; a leading `/` may be left out.
#[derive(Subcommand, Debug)]
pub enum FsCommand {
    Ls(ls::LsArgs),
    Stat(stat::StatArgs),
    Tree(tree::TreeArgs),
    Mkdir(mkdir::MkdirArgs),
    Mknod(mknod::MknodArgs),
    Rmdir(rm::RmdirArgs),
    Rm(rm::RmArgs),
    Mv(mv::MvArgs),
    Ln(ln::LnArgs),
    Put(put::PutArgs),
    Get(get::GetArgs),
    Cat(cat::CatArgs),
    Chmod(attrs::ChmodArgs),
    Chown(attrs::ChownArgs),
    Touch(attrs::TouchArgs),
    Truncate(attrs::TruncateArgs),
    Xattr(xattr::XattrArgs),
    Acl(acl::AclArgs),
    Du(du::DuArgs),
    Df(df::DfArgs),
    Find(find::FindArgs),
    Dump(dump::DumpArgs),
    Load(load::LoadArgs),
}

impl FsCommand {
    /// Whether bytes of files that are kept in blocks may be needed.
    fn needs_bytes(&self) -> bool {
        matches!(
            self,
            FsCommand::Put(_)
                | FsCommand::Get(_)
                | FsCommand::Cat(_)
                | FsCommand::Truncate(_)
                | FsCommand::Dump(_)
                | FsCommand::Load(_)
        )
    }
}

/// What all of these commands share.
pub struct Fs {
    /// The client.
    pub conn: Connection,
    /// On whose behalf.
    pub cred: Cred,
    /// Output for scripts.
    pub json: bool,
    /// What went wrong so far.
    errors: RefCell<Vec<Value>>,
    failed: Cell<bool>,
    /// What goes on.
    pub progress: RefCell<Option<Rc<Progress>>>,
}

/// Runs one.
pub fn run(args: &Args, command: &FsCommand) -> Result<ExitCode> {
    let dir = ClusterDir::of(args)?;
    let mut conn = Connection::open_with(
        &dir,
        Party::Client,
        Options::default(),
        Duration::from_secs(args.wait),
        args.paths,
    )?;
    if command.needs_bytes() {
        conn.seek_blocks(&dir)?;
    }
    let cred = conn.my_cred();
    let fs = Rc::new(Fs {
        conn,
        cred,
        json: args.json,
        errors: RefCell::default(),
        failed: Cell::new(false),
        progress: RefCell::default(),
    });
    fs.say_when_silent();
    let results = match command {
        FsCommand::Ls(a) => ls::run(&fs, a),
        FsCommand::Stat(a) => stat::run(&fs, a),
        FsCommand::Tree(a) => tree::run(&fs, a),
        FsCommand::Mkdir(a) => mkdir::run(&fs, a),
        FsCommand::Mknod(a) => mknod::run(&fs, a),
        FsCommand::Rmdir(a) => rm::rmdir(&fs, a),
        FsCommand::Rm(a) => rm::run(&fs, a),
        FsCommand::Mv(a) => mv::run(&fs, a),
        FsCommand::Ln(a) => ln::run(&fs, a),
        FsCommand::Put(a) => put::run(&fs, a),
        FsCommand::Get(a) => get::run(&fs, a),
        FsCommand::Cat(a) => cat::run(&fs, a),
        FsCommand::Chmod(a) => attrs::chmod(&fs, a),
        FsCommand::Chown(a) => attrs::chown(&fs, a),
        FsCommand::Touch(a) => attrs::touch(&fs, a),
        FsCommand::Truncate(a) => attrs::truncate(&fs, a),
        FsCommand::Xattr(a) => xattr::run(&fs, a),
        FsCommand::Acl(a) => acl::run(&fs, a),
        FsCommand::Du(a) => du::run(&fs, a),
        FsCommand::Df(a) => df::run(&fs, a),
        FsCommand::Find(a) => find::run(&fs, a),
        FsCommand::Dump(a) => dump::run(&fs, a),
        FsCommand::Load(a) => load::run(&fs, a),
    }?;
    fs.end_progress();
    if fs.json {
        let mut object = Map::new();
        object.insert("ok".into(), (!fs.failed.get()).into());
        if let Value::Object(results) = results {
            object.extend(results);
        }
        object.insert("errors".into(), fs.errors.take().into());
        println!("{}", Value::Object(object));
    }
    Ok(if fs.failed.get() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Fs {
    /// The client.
    pub fn client(&self) -> &Rc<Client> {
        &self.conn.client
    }

    /// Time, tasks, randomness.
    pub fn world(&self) -> World {
        self.conn.reactor.clone()
    }

    /// Begins a progress bar.
    pub fn show_progress(&self, progress: Progress) -> Rc<Progress> {
        let progress = Rc::new(progress);
        *self.progress.borrow_mut() = Some(progress.clone());
        progress
    }

    fn end_progress(&self) {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
    }

    /// A line on stderr.
    pub fn complain(&self, line: &str) {
        match &*self.progress.borrow() {
            Some(progress) => progress.complain(line),
            None => eprintln!("{line}"),
        }
    }

    /// Something did not work; the command goes on with the rest.
    pub fn fail(&self, path: &[u8], why: impl Into<Why>) {
        self.failed.set(true);
        let why = match why.into() {
            Why::Errno(Errno::Unreachable) => {
                let servers = self.conn.trouble().unwrap_or_else(|| "no answer".into());
                format!(
                    "a metadata server is away ({servers}); `pando up` starts what is missing on this machine, `pando status` shows the rest"
                )
            }
            Why::Errno(Errno::Access) => match self.conn.trouble() {
                Some(why) => format!("{} ({why})", Errno::Access),
                None if self.conn.client.stats().not_allowed > 0 => format!(
                    "{} (the identity we connect with may not act for user {} and its groups, or not there; `pando auth list` shows \
                     what it may, and commands act for who runs them)",
                    Errno::Access,
                    self.cred.uid
                ),
                None => advice(Errno::Access),
            },
            Why::Errno(e) => advice(e),
            Why::Text(text) => text,
        };
        if self.json {
            let mut object = Map::new();
            text::put_bytes(&mut object, "path", path);
            object.insert("error".into(), why.into());
            self.errors.borrow_mut().push(Value::Object(object));
        } else {
            self.complain(&format!("pando: {}: {why}", text::printable(path)));
        }
    }

    /// A command that waits for a server that is away must not look dead.
    fn say_when_silent(self: &Rc<Self>) {
        let (reactor, fs) = (self.conn.reactor.clone(), Rc::downgrade(self));
        let world = reactor.clone();
        reactor.spawn(Box::pin(async move {
            world.sleep(SILENCE).await;
            if let Some(fs) = fs.upgrade()
                && let Some(trouble) = fs.conn.trouble()
            {
                fs.complain(&format!("pando: waiting for {trouble}"));
            }
        }));
    }
}

/// Why something did not work.
pub enum Why {
    /// The servers say so.
    Errno(Errno),
    /// In words.
    Text(String),
}

impl From<Errno> for Why {
    fn from(e: Errno) -> Why {
        Why::Errno(e)
    }
}

impl From<String> for Why {
    fn from(text: String) -> Why {
        Why::Text(text)
    }
}

impl From<&str> for Why {
    fn from(text: &str) -> Why {
        Why::Text(text.into())
    }
}

impl From<std::io::Error> for Why {
    fn from(e: std::io::Error) -> Why {
        Why::Text(e.to_string())
    }
}

/// An error with what to do about it, where that is not obvious.
fn advice(e: Errno) -> String {
    let hint = match e {
        Errno::NameTooLong => " (a name has at most 255 bytes, a path 4,095)",
        Errno::NotEmpty => " (`pando rm -r` removes it with what is in it)",
        Errno::Stale => " (somebody changed it meanwhile; try again)",
        Errno::Perm => " (only the owner or root may do this)",
        _ => "",
    };
    format!("{e}{hint}")
}

/// A path as the client wants it: from the root.
pub fn absolute(path: &OsStr) -> Vec<u8> {
    let bytes = path.as_bytes();
    if bytes.starts_with(b"/") || bytes.is_empty() {
        return bytes.to_vec();
    }
    [b"/", bytes].concat()
}

/// The last component of a path; empty for the root.
pub fn base(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
    let start = path[..end].iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
    &path[start..end]
}

/// A path one further down.
pub fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    if out.last() != Some(&b'/') {
        out.push(b'/');
    }
    out.extend_from_slice(name);
    out
}

/// Output of a command that has nothing to show but what it did.
pub fn nothing() -> Value {
    json!({})
}

/// Writes to stdout. A reader that went away (`| head`) ends the program quietly.
pub fn print(bytes: &[u8]) -> Result<()> {
    match std::io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// Permission bits in octal.
pub fn octal(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(bits) if bits <= 0o7777 => Ok(bits),
        _ => Err("permission bits are octal, 0 to 7777; for example 755".into()),
    }
}

/// Permissions of what is created, as far as the umask lets them: it does not count where there is a default
/// list.
pub fn usual(bits: u16) -> Mode {
    Mode {
        perm: Perm::new(bits),
        umask: Perm::new(umask()),
    }
}

/// The mask of permission bits that this process takes away from what it creates.
fn umask() -> u16 {
    use rustix::fs::Mode;
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits() as u16 & 0o777
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        assert_eq!(absolute(OsStr::new("a/b")), b"/a/b");
        assert_eq!(absolute(OsStr::new("/a")), b"/a");
        assert_eq!(base(b"/a/b//"), b"b");
        assert_eq!(base(b"/"), b"");
        assert_eq!(base(b"x"), b"x");
        assert_eq!(below(b"/", b"x"), b"/x");
        assert_eq!(below(b"/a", b"x"), b"/a/x");
        assert!(octal("8").is_err() && octal("17777").is_err());
    }
}

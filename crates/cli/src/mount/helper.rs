//! `mount.fuse.pando`: what mount(8) runs for `mount -t fuse.pando` and for lines of fstab.
//!
//! mount(8) runs `/sbin/mount.fuse.pando SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, a link to
//! this program. Where there is none it runs `mount.fuse`, and that runs the program which the type names:
//! `pando SPEC DIR [-o OPTIONS]`. SPEC is the folder of the cluster.

use super::options::Words;
use crate::args::{Args, Command};
use crate::cluster_dir::ClusterDir;
use crate::process;
use anyhow::{Context, Result, bail};
use pando_fuse::{Flags, table};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// mount(8)'s exit codes: wrong usage.
const USAGE: u8 = 1;
/// It is not mounted.
const NOT_MOUNTED: u8 = 32;

/// A command line of mount(8).
#[derive(Default, Debug)]
struct Call {
    spec: OsString,
    at: PathBuf,
    words: Words,
    /// `-s`: do not mind unknown options.
    sloppy: bool,
    /// `-f`: only look whether it could be done.
    fake: bool,
    /// `-v`: say what is done.
    verbose: bool,
}

/// The arguments, if this process was started as mount(8) starts its helpers.
pub fn called() -> Option<Vec<OsString>> {
    let mut all = std::env::args_os();
    let name = all.next()?;
    let rest: Vec<OsString> = all.collect();
    let as_helper = Path::new(&name).file_name()?.as_bytes().starts_with(b"mount.");
    // No command begins with a slash.
    let by_mount_fuse = rest.first().is_some_and(|a| a.as_bytes().starts_with(b"/")) && rest.len() > 1;
    (as_helper || by_mount_fuse).then_some(rest)
}

/// Does what mount(8) wants, and says how it went in its exit codes.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    process::log_to_stderr(0);
    let call = match parse(arguments) {
        Ok(call) => call,
        Err(why) => {
            eprintln!(
                "mount.fuse.pando: {why}\nusage: mount -t fuse.pando FOLDER DIR [-o OPTION,...]; FOLDER is that of the cluster (docs/operations.md)"
            );
            return USAGE.into();
        }
    };
    match act(&call) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("mount.fuse.pando: {e:#}");
            NOT_MOUNTED.into()
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Call, String> {
    let mut call = Call::default();
    let mut places = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        let Some(letters) = bytes.strip_prefix(b"-").filter(|l| !l.is_empty()) else {
            places.push(argument);
            continue;
        };
        for (i, letter) in letters.iter().enumerate() {
            let mut value = || {
                let behind = &letters[i + 1..];
                let value = if behind.is_empty() {
                    rest.next()
                } else {
                    Some(OsStr::from_bytes(behind).to_owned())
                };
                let value = value.ok_or(format!("-{} wants a value", char::from(*letter)))?;
                value
                    .into_string()
                    .map_err(|v| format!("{} is not UTF-8", v.display()))
            };
            match letter {
                b's' => call.sloppy = true,
                b'f' => call.fake = true,
                b'v' => call.verbose = true,
                // There is no table of mounts but the kernel's.
                b'n' => {}
                b'w' => call.words.add("rw")?,
                b'r' => call.words.add("ro")?,
                b'o' => {
                    call.words.add(&value()?)?;
                    break;
                }
                b't' => {
                    let kind = value()?;
                    if kind != pando_fuse::TYPE && kind != "pando" {
                        return Err(format!("{kind} is not the type of this filesystem, fuse.pando"));
                    }
                    break;
                }
                b'N' => {
                    return Err(
                        "mounting in another namespace is not supported; enter it first (nsenter)".into(),
                    );
                }
                other => return Err(format!("-{} is not known", char::from(*other))),
            }
        }
    }
    if !call.sloppy {
        call.words.all_known()?;
    }
    let [spec, at] =
        <[OsString; 2]>::try_from(places).map_err(|_| "a folder and a directory are wanted".to_owned())?;
    call.spec = spec;
    call.at = at.into();
    Ok(call)
}

fn act(call: &Call) -> Result<()> {
    let spec = Path::new(&call.spec);
    // Of what is mounted already, mount(8) says what the kernel shows, which may be a name.
    let dir = spec.is_absolute().then(|| ClusterDir {
        path: spec.to_path_buf(),
        key: call.words.key.clone(),
    });
    let at = super::place(&call.at)?;
    if table::find(&at).is_none()
        && let Err(e) = std::fs::symlink_metadata(&call.at)
        && e.kind() == std::io::ErrorKind::NotFound
    {
        bail!("mount point {} does not exist", call.at.display());
    }
    if call.words.remount {
        if call.fake {
            return check(dir.as_ref(), &at, &call.words);
        }
        change(dir.as_ref(), &at, &call.words)?;
        if call.verbose {
            println!("mount.fuse.pando: {} remounted", at.display());
        }
        return Ok(());
    }
    let dir = dir.with_context(|| {
        format!(
            "{} is no absolute path: say the cluster's folder, such as /var/lib/pando",
            spec.display()
        )
    })?;
    let source = spec
        .to_str()
        .with_context(|| format!("{} is not UTF-8", spec.display()))?;
    dir.load()?;
    if call.fake {
        return Ok(());
    }
    if !super::start::mount(&dir, &at, &super::arguments(&call.words, Some(source)), false)? {
        bail!("{} is mounted at {} already", spec.display(), at.display());
    }
    if call.verbose {
        println!("mount.fuse.pando: {} mounted at {}", spec.display(), at.display());
    }
    Ok(())
}

/// Changes the flags of a mount. Refuses what cannot change while it is mounted.
pub fn change(dir: Option<&ClusterDir>, at: &Path, words: &Words) -> Result<Flags> {
    check(dir, at, words)?;
    let flags: Vec<&str> = words.flags.iter().map(String::as_str).collect();
    Ok(pando_fuse::remount(at, &flags)?)
}

/// Fails if other than flags of the kernel would change.
fn check(dir: Option<&ClusterDir>, at: &Path, words: &Words) -> Result<()> {
    let found = table::find(at).filter(|m| m.kind == pando_fuse::TYPE);
    let Some(found) = found else {
        bail!("no filesystem of Pando is mounted at {}", at.display());
    };
    let refuse = |what: &str| -> Result<()> {
        bail!(
            "{what} cannot change while {} is mounted: unmount it, and mount it anew",
            at.display()
        )
    };
    if words.allow_other && !found.of_filesystem.iter().any(|o| o == "allow_other") {
        return refuse("allow_other");
    }
    if words.default_permissions && !found.of_filesystem.iter().any(|o| o == "default_permissions") {
        return refuse("default_permissions");
    }
    let Some(dir) = dir else { return Ok(()) };
    // What it was told is on its command line.
    let Some((told, key)) = told(dir, at) else {
        return Ok(());
    };
    let default = super::DEFAULT_TIMEOUT.as_secs_f64();
    if words
        .timeout
        .is_some_and(|t| t != told.timeout.unwrap_or(default))
    {
        return refuse("timeout");
    }
    let default = super::DEFAULT_PUBLISH.as_secs_f64();
    if words
        .publish
        .is_some_and(|p| p != told.publish.unwrap_or(default))
    {
        return refuse("publish");
    }
    if words.key.is_some() && words.key != key {
        return refuse("key");
    }
    if words.local_locks && !told.local_locks {
        return refuse("nolock");
    }
    Ok(())
}

/// What the process that serves a mount was told, and its key.
fn told(dir: &ClusterDir, at: &Path) -> Option<(Words, Option<PathBuf>)> {
    let pid = process::running(dir, &super::start::lock_name(at))?;
    let line = process::command_line(pid)?;
    let args = Args::of_line(&line)?;
    match &args.command {
        Command::Mount(mount) => Some((super::words(mount).ok()?, args.key.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Call, String> {
        parse(text.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn lines_of_mount() {
        let call = line("/srv/p /mnt -sv -n -o rw,noauto -o remount,timeout=2 -t fuse.pando").unwrap();
        assert_eq!(
            (call.spec.to_str(), call.at.to_str()),
            (Some("/srv/p"), Some("/mnt"))
        );
        assert!(call.sloppy && call.verbose && !call.fake && call.words.remount);
        assert_eq!(
            (call.words.timeout, call.words.flags),
            (Some(2.0), vec!["rw".into()])
        );
        assert!(line("-oro -f /srv/p /mnt").unwrap().words.for_new().read_only());
        assert!(line("/srv/p /mnt -s -o what").is_ok());
    }

    #[test]
    fn lines_that_are_wrong() {
        for text in [
            "/srv/p",
            "/srv/p /mnt /more",
            "/srv/p /mnt -o",
            "/srv/p /mnt -x",
            "/srv/p /mnt -t ext4",
            "/srv/p /mnt -N 1",
            "/srv/p /mnt -o what",
            "/srv/p /mnt -o timeout=soon",
        ] {
            assert!(line(text).is_err(), "{text}");
        }
    }
}

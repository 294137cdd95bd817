//! `pando mknod`.

use super::{Fs, absolute, nothing, octal, usual};
use anyhow::{Result, bail};
use clap::ValueEnum;
use pando_types::{FileKind, Perm};
use serde_json::Value;
use std::ffi::OsString;
use std::rc::Rc;

/// Make special files: FIFOs, names of sockets, devices.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando mknod /queue p\n  pando mknod -m 600 /null c 1 3")]
pub struct MknodArgs {
    /// Permission bits, in octal. [default: 666 without the umask]
    #[arg(short, long, value_parser = octal)]
    pub mode: Option<u16>,
    /// What to make.
    #[arg(value_name = "PATH")]
    pub path: OsString,
    /// Of which kind.
    #[arg(value_enum)]
    pub kind: Kind,
    /// Major number of a device.
    #[arg(value_parser = clap::value_parser!(u32).range(0..4096))]
    pub major: Option<u32>,
    /// Minor number of a device.
    #[arg(value_parser = clap::value_parser!(u32).range(0..0x10_0000))]
    pub minor: Option<u32>,
}

/// Kinds of special files.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A FIFO.
    P,
    /// The name of a socket.
    S,
    /// A character device.
    C,
    /// A block device.
    B,
}

pub fn run(fs: &Rc<Fs>, args: &MknodArgs) -> Result<Value> {
    let (kind, device) = match args.kind {
        Kind::P => (FileKind::Fifo, false),
        Kind::S => (FileKind::Socket, false),
        Kind::C => (FileKind::CharDevice, true),
        Kind::B => (FileKind::BlockDevice, true),
    };
    let rdev = match (device, args.major, args.minor) {
        (true, Some(major), Some(minor)) => device_number(major, minor),
        (false, None, None) => 0,
        (true, ..) => bail!("a device has a major and a minor number, as in `pando mknod /null c 1 3`"),
        (false, ..) => bail!("only devices have numbers"),
    };
    let perm = args.mode.map_or(usual(0o666), |bits| Perm::new(bits).into());
    let path = absolute(&args.path);
    if let Err(e) = fs.conn.run(fs.client().mknod(&fs.cred, &path, kind, perm, rdev)) {
        fs.fail(&path, e);
    }
    Ok(nothing())
}

/// As Linux has it in 32 bits.
fn device_number(major: u32, minor: u32) -> u64 {
    u64::from(minor & 0xFF | major << 8 | (minor & !0xFF) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_linux() {
        for (major, minor) in [(1, 3), (8, 0), (259, 70_000), (4095, 0xF_FFFF)] {
            let number = device_number(major, minor);
            assert_eq!(number, rustix::fs::makedev(major, minor));
            assert_eq!(crate::text::device(number), (major.into(), minor.into()));
        }
    }
}

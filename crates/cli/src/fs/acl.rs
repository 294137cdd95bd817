//! `pando acl`.

use super::{Fs, Why, absolute, nothing};
use anyhow::Result;
use clap::Subcommand;
use pando_types::{Acl, AclKind, Errno, Named};
use pando_wire::EntryView;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::rc::Rc;

/// Show and change access control lists (POSIX ACLs), with numbers of users and groups.
///
/// A list has an entry for the owner, the group and others, and may have some for users and groups by number;
/// those are bounded, as the group is, by a mask. Without a mask where one is needed it is all that they
/// allow together.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando acl set /notes.txt user::rw-,user:1001:rw-,group::r--,other::---\n  pando acl get /notes.txt\n  \
                  pando acl set /shared --default u::7,g::5,g:100:7,o::0\n  pando acl remove /shared --default"
)]
pub struct AclArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: AclAction,
}

/// What to do with lists.
#[derive(Subcommand, Debug)]
pub enum AclAction {
    /// Show the lists of files and directories; without a list, what the permission bits say.
    Get {
        /// Of what.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
    /// Replace a list, and with it the permission bits.
    Set {
        /// The list that new files and directories in this directory begin with, instead.
        #[arg(short, long)]
        default: bool,
        /// Of what.
        #[arg(value_name = "PATH")]
        path: OsString,
        /// The whole list: user::rwx,user:1000:r--,group::r-x,mask::rwx,other::---
        #[arg(value_name = "LIST", value_parser = list)]
        list: Acl,
    },
    /// Remove a list; permission bits stay as they are.
    Remove {
        /// The list that new files and directories in this directory begin with, instead.
        #[arg(short, long)]
        default: bool,
        /// Of what.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
}

fn list(text: &str) -> Result<Acl, String> {
    Acl::parse(text).map_err(|e| match e {
        Errno::ValueTooBig => "a list has at most 32 entries".into(),
        _ => "a list has an entry for user::, group:: and other::, others like user:1000:r-x or group:100:5, each once, and perhaps mask::"
            .into(),
    })
}

fn kind(default: bool) -> AclKind {
    if default {
        AclKind::Default
    } else {
        AclKind::Access
    }
}

pub fn run(fs: &Rc<Fs>, args: &AclArgs) -> Result<Value> {
    let client = fs.client();
    match &args.action {
        AclAction::Get { paths } => {
            let mut shown = Vec::new();
            for path in paths {
                let path = absolute(path);
                match fs.conn.run(client.listed(&fs.cred, &path)) {
                    Ok(view) if fs.json => shown.push(object(&path, &view)),
                    Ok(view) => print(&path, &view),
                    Err(e) => fs.fail(&path, e),
                }
            }
            if fs.json {
                return Ok(json!({ "lists": shown }));
            }
        }
        AclAction::Set { default, path, list } => set(fs, path, kind(*default), Some(list)),
        AclAction::Remove { default, paths } => {
            for path in paths {
                set(fs, path, kind(*default), None);
            }
        }
    }
    Ok(nothing())
}

fn set(fs: &Rc<Fs>, path: &OsString, kind: AclKind, list: Option<&Acl>) {
    let path = absolute(path);
    match fs.conn.run(fs.client().set_acl(&fs.cred, &path, kind, list)) {
        Ok(_) => {}
        Err(Errno::Access) if kind == AclKind::Default && list.is_some() => {
            let why = "permission denied, or not a directory: only directories have a default list";
            fs.fail(&path, Why::Text(why.into()));
        }
        Err(e) => fs.fail(&path, e),
    }
}

/// As getfacl does.
fn print(path: &[u8], view: &EntryView) {
    let acls = view.acls();
    println!("# file: {}", crate::text::printable(path));
    println!("# owner: {}\n# group: {}", view.attr.uid, view.attr.gid);
    for line in Acl::of(view.attr.perm, acls.access.as_ref()).lines() {
        println!("{line}");
    }
    for line in acls.default.iter().flat_map(Acl::lines) {
        println!("default:{line}");
    }
    println!();
}

fn object(path: &[u8], view: &EntryView) -> Value {
    let acls = view.acls();
    let mut object = Map::new();
    crate::text::put_bytes(&mut object, "path", path);
    object.insert("uid".into(), view.attr.uid.into());
    object.insert("gid".into(), view.attr.gid.into());
    object.insert("extended".into(), acls.access.is_some().into());
    let access = Acl::of(view.attr.perm, acls.access.as_ref());
    object.insert("access".into(), entries(&access));
    object.insert(
        "default".into(),
        acls.default.as_ref().map_or(Value::Null, entries),
    );
    Value::Object(object)
}

fn entries(list: &Acl) -> Value {
    let named = |all: &[Named]| -> Vec<Value> {
        all.iter()
            .map(|n| json!({ "id": n.id, "permissions": n.may }))
            .collect()
    };
    json!({
        "owner": list.owner,
        "users": named(&list.users),
        "group": list.group,
        "groups": named(&list.groups),
        "mask": list.mask,
        "other": list.other,
    })
}

//! `pando xattr`.

use super::{Fs, Why, absolute, nothing};
use crate::text;
use anyhow::Result;
use clap::Subcommand;
use pando_types::{Errno, XattrMode, XattrName};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Show and change extended attributes: `user.` by the permissions of a file, `trusted.` and `security.` as
/// the superuser.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando xattr set /notes.txt user.author me\n  pando xattr get /notes.txt user.author\n  pando xattr list \
                  /notes.txt --json\n  pando xattr rm /notes.txt user.author"
)]
pub struct XattrArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: XattrAction,
}

/// What to do with attributes.
#[derive(Subcommand, Debug)]
pub enum XattrAction {
    /// Write the value of an attribute to standard output.
    Get {
        #[command(flatten)]
        of: Of,
        /// The attribute, with its namespace.
        name: OsString,
    },
    /// Set an attribute.
    Set {
        #[command(flatten)]
        of: Of,
        /// The attribute, with its namespace.
        name: OsString,
        /// Its value.
        value: OsString,
        /// Only if there is none.
        #[arg(long, conflicts_with = "replace")]
        create: bool,
        /// Only if there is one.
        #[arg(long)]
        replace: bool,
    },
    /// Remove an attribute.
    Rm {
        #[command(flatten)]
        of: Of,
        /// The attribute, with its namespace.
        name: OsString,
    },
    /// List the names of attributes.
    List {
        #[command(flatten)]
        of: Of,
    },
}

/// Of what.
#[derive(clap::Args, Debug)]
pub struct Of {
    /// Of a symbolic link itself.
    #[arg(long)]
    pub no_dereference: bool,
    /// Of what.
    #[arg(value_name = "PATH")]
    pub path: OsString,
}

impl XattrAction {
    fn of(&self) -> &Of {
        match self {
            XattrAction::Get { of, .. }
            | XattrAction::Set { of, .. }
            | XattrAction::Rm { of, .. }
            | XattrAction::List { of } => of,
        }
    }
}

pub fn run(fs: &Rc<Fs>, args: &XattrArgs) -> Result<Value> {
    let of = args.action.of();
    let path = absolute(&of.path);
    match act(fs, &args.action, &path, !of.no_dereference) {
        Ok(value) => Ok(value),
        Err(why) => {
            fs.fail(&path, why);
            Ok(nothing())
        }
    }
}

fn act(fs: &Rc<Fs>, action: &XattrAction, path: &[u8], follow: bool) -> Result<Value, Why> {
    let (client, cred) = (fs.client(), &fs.cred);
    match action {
        XattrAction::Get { name, .. } => {
            let attr = named(name)?;
            let value = fs.conn.run(client.get_xattr(cred, path, follow, &attr))?;
            if fs.json {
                let mut object = Map::new();
                text::put_bytes(&mut object, "value", &value);
                return Ok(Value::Object(object));
            }
            let mut out = std::io::stdout().lock();
            out.write_all(&value)?;
            if out.is_terminal() {
                out.write_all(b"\n")?;
            }
        }
        XattrAction::Set {
            name,
            value,
            create,
            replace,
            ..
        } => {
            let (attr, value) = (named(name)?, value.as_bytes());
            let mode = match (create, replace) {
                (true, _) => XattrMode::Create,
                (_, true) => XattrMode::Replace,
                _ => XattrMode::Any,
            };
            fs.conn
                .run(client.set_xattr(cred, path, follow, &attr, value, mode))?;
        }
        XattrAction::Rm { name, .. } => {
            let attr = named(name)?;
            fs.conn.run(client.remove_xattr(cred, path, follow, &attr))?;
        }
        XattrAction::List { .. } => {
            let names = fs.conn.run(client.list_xattrs(cred, path, follow))?;
            if fs.json {
                let names = names.iter().map(|n| {
                    let mut object = Map::new();
                    text::put_bytes(&mut object, "name", n.as_bytes());
                    Value::Object(object)
                });
                return Ok(json!({ "attributes": names.collect::<Vec<_>>() }));
            }
            for name in names {
                println!("{}", text::printable(name.as_bytes()));
            }
        }
    }
    Ok(nothing())
}

fn named(name: &OsString) -> Result<XattrName, Why> {
    XattrName::new(name.as_bytes()).map_err(|e| match e {
        Errno::Unsupported | Errno::Invalid => Why::Text(format!(
            "{}: an attribute is called user.NAME, trusted.NAME or security.NAME",
            text::printable(name.as_bytes())
        )),
        e => Why::Errno(e),
    })
}

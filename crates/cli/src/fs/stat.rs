//! `pando stat`.

use super::{Fs, absolute};
use crate::text::{self, Names};
use anyhow::Result;
use pando_format::Layout;
use pando_types::{Attr, Errno, FileKind, Name, Part};
use pando_wire::{Answer, EntryView, Op, Statement};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::rc::Rc;

/// Show everything about files: attributes with nanoseconds (UTC), where the bytes are, which server answers.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando stat /home/me/notes.txt\n  pando stat -L /link --json")]
pub struct StatArgs {
    /// Follow symbolic links.
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// Of what.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

struct Shown {
    attr: Attr,
    view: EntryView,
    /// The part of a directory that has the name.
    part: Part,
    target: Option<Vec<u8>>,
}

pub fn run(fs: &Rc<Fs>, args: &StatArgs) -> Result<Value> {
    let names = Names::load();
    let mut all = Vec::new();
    for path in &args.paths {
        let path = absolute(path);
        match fs.conn.run(look(fs, &path, args.dereference)) {
            Ok(shown) if fs.json => all.push(json(fs, &path, &shown)),
            Ok(shown) => print(fs, &names, &path, &shown),
            Err(e) => fs.fail(&path, e),
        }
    }
    Ok(json!({ "files": all }))
}

async fn look(fs: &Rc<Fs>, path: &[u8], follow: bool) -> Result<Shown, Errno> {
    let found = fs.client().resolve(&fs.cred, path, follow).await?;
    let attr = fs.client().attr(&fs.cred, &found.entry).await?;
    let target = if attr.kind == FileKind::Symlink {
        Some(target(fs, &found.parent, found.name.as_bytes(), &found.entry).await?)
    } else {
        None
    };
    Ok(Shown {
        attr,
        part: fs.client().part_with(&found.parent, &found.name),
        view: found.entry,
        target,
    })
}

/// Where a symbolic link leads.
pub async fn target(fs: &Fs, dir: &Statement, name: &[u8], link: &EntryView) -> Result<Vec<u8>, Errno> {
    if let Layout::Target(t) = &link.layout {
        return Ok(t.0.clone());
    }
    let op = Op::ReadLink {
        dir: dir.clone(),
        name: Name::new(name)?,
    };
    match fs.client().op(&fs.cred, op).await? {
        Answer::Target(t) => Ok(t.0),
        _ => Err(Errno::Io),
    }
}

fn layout(view: &EntryView) -> String {
    match &view.layout {
        Layout::None => "no data".into(),
        Layout::Inline => "inline".into(),
        Layout::SparseInline(len) => format!("inline, {len} bytes stored"),
        Layout::Blocks(size) => format!("blocks of {size} bytes"),
        Layout::Sparse {
            block_size,
            allocated,
        } => format!("blocks of {block_size} bytes, {allocated} bytes stored"),
        Layout::Target(_) | Layout::LongTarget => "target".into(),
    }
}

fn json(fs: &Fs, path: &[u8], s: &Shown) -> Value {
    let mut object = Map::new();
    text::put_bytes(&mut object, "path", path);
    object.extend(text::attr_json(&s.attr));
    if let Some(target) = &s.target {
        text::put_bytes(&mut object, "target", target);
    }
    let map = fs.client().map();
    let slot = s.part.slot();
    object.insert("slot".into(), slot.0.into());
    object.insert("server".into(), map.owner(slot).0.into());
    object.insert("version".into(), s.view.version.into());
    match &s.view.dir {
        Some(dir) => {
            object.insert("directory_id".into(), dir.id.to_string().into());
            object.insert("content_slot".into(), Part::whole(dir.id).slot().0.into());
            object.insert(
                "content_server".into(),
                map.owner(Part::whole(dir.id).slot()).0.into(),
            );
        }
        None => {
            object.insert("layout".into(), layout(&s.view).into());
        }
    }
    Value::Object(object)
}

fn print(fs: &Fs, names: &Names, path: &[u8], s: &Shown) {
    let a = &s.attr;
    let arrow = s.target.as_ref().map(|t| format!(" -> {}", text::printable(t)));
    println!("  Path: {}{}", text::printable(path), arrow.unwrap_or_default());
    let size = if a.kind == FileKind::Directory {
        format!("{} entries", a.size)
    } else {
        format!("{} bytes, {}", a.size, layout(&s.view))
    };
    println!("  Kind: {}, {size}", text::kind_word(a.kind));
    println!(
        " Inode: {}  Generation: {}  Links: {}",
        a.ino, a.generation, a.nlink
    );
    println!(
        "Access: ({:04o}/{})  Owner: {} ({})  Group: {} ({})",
        a.perm.bits(),
        text::mode(a),
        a.uid,
        names.user(a.uid),
        a.gid,
        names.group(a.gid)
    );
    println!("Access: {}", text::time(a.atime, true));
    println!("Modify: {}", text::time(a.mtime, true));
    println!("Change: {}", text::time(a.ctime, true));
    let map = fs.client().map();
    let slot = s.part.slot();
    print!("Server: {} (slot {slot})", map.owner(slot));
    if let Some(dir) = &s.view.dir {
        let slot = Part::whole(dir.id).slot();
        print!(
            "  Content: server {} (slot {slot})  ID: {}",
            map.owner(slot),
            dir.id
        );
    }
    println!();
}

//! Messages and operations in a few words, as traces and findings show them.

use pando_wire::{Message, Object, OpRequest, PeerRequest, Request, Response};

/// A message in one line.
pub fn describe(message: &Message) -> String {
    match message {
        Message::Request {
            id,
            boot,
            request,
            explain,
        } => {
            let explain = if *explain { " (explain)" } else { "" };
            format!(
                "#{} b{} {}{explain}",
                id % 1_000_000,
                boot.0,
                describe_request(request)
            )
        }
        Message::Reply { id, result, account } => {
            let account = account.as_ref().map_or(String::new(), |a| format!(" {a:?}"));
            format!("#{} = {}{account}", id % 1_000_000, describe_result(result))
        }
    }
}

fn describe_request(request: &Request) -> String {
    match request {
        Request::Op(asked) => {
            let OpRequest {
                request, cred, op, ..
            } = &**asked;
            let id = request.map_or(String::new(), |r| {
                format!("{:x}/{}/{} ", r.session.0 >> 112, r.slot, r.sequence)
            });
            format!("{id}u{} {}", cred.uid, describe_op(op))
        }
        Request::Peer(PeerRequest::Lock { tx, wants, .. }) => format!("lock {tx} {wants:?}"),
        Request::Peer(PeerRequest::Prepare {
            tx,
            locked,
            mutations,
            reply,
            ..
        }) => {
            format!(
                "prepare {tx} locked={locked} {mutations:?} reply={}",
                reply.is_some()
            )
        }
        Request::Peer(PeerRequest::Content { contents, .. }) => {
            let all = contents.iter();
            let all: Vec<String> = all
                .map(|(tx, c)| format!("{tx} {:?} {:?}", c.dir, c.head.generation))
                .collect();
            format!("content {}", all.join(", "))
        }
        other => shorten(format!("{other:?}")),
    }
}

fn describe_result(result: &Result<Response, pando_wire::Refusal>) -> String {
    match result {
        Ok(Response::Op(outcome)) => shorten(format!("{outcome:?}")),
        Ok(Response::Map(_)) => "map".into(),
        other => shorten(format!("{other:?}")),
    }
}

fn short(name: &pando_types::Name) -> String {
    let text = name.to_string();
    if text.len() > 40 {
        format!("{}…({})", text.chars().take(4).collect::<String>(), text.len())
    } else {
        text
    }
}

/// An operation in a few words.
pub fn describe_op(op: &pando_wire::Op) -> String {
    use pando_wire::Op;
    let at = |d: &pando_wire::Statement| {
        format!(
            "{:x}g{:x}@{}",
            d.id.0 >> 112,
            d.generation.0 & 0xFFFF_FFFF,
            d.at.0 & 0xFFFF_FFFF
        )
    };
    let meant = |o: &Object| format!("{}/{} ino {}", at(&o.dir), short(&o.name), o.ino);
    match op {
        Op::Home { slot, ino, .. } => format!("home of {ino} in slot {slot}"),
        Op::Lookup { dir, name } | Op::ReadLink { dir, name } | Op::Rmdir { dir, name } => {
            format!("{} {}/{}", op.kind(), at(dir), short(name))
        }
        Op::Open { dir, name, want } => format!("open {}/{} {want}", at(dir), short(name)),
        Op::DirStat { dir } | Op::Reopen { dir } | Op::Bulk { dir, .. } => {
            format!("{} {}", op.kind(), at(dir))
        }
        Op::ReadDir {
            dir,
            after,
            limit,
            plus,
        } => {
            format!(
                "readdir {} after {:x} limit {limit} plus {plus}",
                at(dir),
                after.0
            )
        }
        Op::Create {
            dir,
            name,
            mode,
            exclusive,
            ..
        } => {
            format!(
                "create {}/{} {:o} exclusive {exclusive}",
                at(dir),
                short(name),
                mode.perm.bits()
            )
        }
        Op::Tmpfile { dir, mode, linkable } => {
            format!("tmpfile {} {:o} linkable {linkable}", at(dir), mode.perm.bits())
        }
        Op::Symlink { dir, name, target } => format!("symlink {}/{} {target:?}", at(dir), short(name)),
        Op::Mkdir { dir, name, mode } => format!("mkdir {}/{} {:o}", at(dir), short(name), mode.perm.bits()),
        Op::Unlink { dir, name, held } => format!("unlink {}/{} held {held}", at(dir), short(name)),
        Op::UnlinkMany { dir, names } => {
            let names: Vec<String> = names.iter().map(short).collect();
            format!("unlinkmany {}/{{{}}}", at(dir), names.join(","))
        }
        Op::SetAttr { object, change, .. } => format!("setattr {} {change:?}", meant(object)),
        Op::Mknod {
            dir,
            name,
            kind,
            mode,
            rdev,
        } => format!(
            "mknod {}/{} {kind:?} {:o} {rdev:x}",
            at(dir),
            short(name),
            mode.perm.bits()
        ),
        Op::SetAcl {
            object, kind, list, ..
        } => {
            let list = list.as_ref().map(|l| l.lines().join(","));
            format!("setacl {} {kind:?} {list:?}", meant(object))
        }
        Op::ListXattr { object } => format!("listxattr {}", meant(object)),
        Op::GetXattr { object, attr, .. } | Op::RemoveXattr { object, attr, .. } => {
            format!("{} {} {attr}", op.kind(), meant(object))
        }
        Op::SetXattr {
            object,
            attr,
            value,
            mode,
            ..
        } => format!(
            "setxattr {} {attr} {mode:?} {} bytes",
            meant(object),
            value.0.len()
        ),
        Op::Accessed { object, ago, .. } => format!("accessed {} {ago} ns ago", meant(object)),
        Op::Publish {
            object,
            content,
            size,
            base,
            ..
        } => {
            format!("publish {} {content:?} size {size} base {base:?}", meant(object))
        }
        Op::Link {
            object,
            dst,
            dst_name,
            ..
        } => format!("link {} to {}/{}", meant(object), at(dst), short(dst_name)),
        Op::Rename {
            src,
            src_name,
            dst,
            dst_name,
            mode,
            ..
        } => {
            format!(
                "rename {}/{} {}/{} {mode:?}",
                at(src),
                short(src_name),
                at(dst),
                short(dst_name)
            )
        }
        Op::StatFs | Op::Sync => op.kind().into(),
        Op::Release { ino, generation, .. } => format!("release {ino} g{:x}", generation.0 & 0xFFFF_FFFF),
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > 400 {
        text.truncate(
            text.char_indices()
                .take_while(|(i, _)| *i < 400)
                .last()
                .map_or(0, |(i, _)| i),
        );
        text.push('…');
    }
    text
}

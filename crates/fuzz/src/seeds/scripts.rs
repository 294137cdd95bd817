//! Inputs of the target `server`: things that clients do, in order.

use super::messages::{ask, operations, request, requests, statement};
use super::records::{SESSION, name};
use crate::targets::{BOOT, EXPLAIN, OBJECTS, OPERATES, PASS, SEQUENCE, STATEMENTS, TWICE};
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_types::{AttrChange, Generation, Ino, Name, Part, Perm, TimeChange, Timestamp};
use pando_wire::{Content, Handle, Object, Op, RenameMode, Request};

/// The root, and the place above it, by the number under which the target knows them.
const ABOVE: u128 = 0;
const ROOT: u128 = 1;
const SUB: u128 = 2;

/// A script that grows.
struct Script {
    bytes: Vec<u8>,
    next: u64,
}

impl Script {
    /// A registered session, and the root looked up.
    fn new() -> Script {
        let mut s = Script {
            bytes: Vec::new(),
            next: 1,
        };
        s.ask(BOOT, Request::OpenSession(SESSION));
        s.op(Op::Lookup {
            dir: statement(ABOVE),
            name: Name::root(),
        });
        s
    }

    fn ask(&mut self, flags: u8, what: Request) {
        let bytes = request(self.next, what).to_bytes();
        self.next += 1;
        self.bytes.push(flags);
        self.bytes.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&bytes);
    }

    fn op(&mut self, op: Op) {
        let explain = if self.next.is_multiple_of(2) { EXPLAIN } else { 0 };
        self.ask(BOOT | STATEMENTS | OBJECTS | SEQUENCE | explain, ask(op));
    }

    fn pass(&mut self, times: u8) {
        self.bytes.extend_from_slice(&[PASS, times]);
    }

    fn mkdir(&mut self, dir: u128, text: &str) {
        self.op(Op::Mkdir {
            dir: statement(dir),
            name: name(text),
            mode: Perm::new(0o755).into(),
        });
    }

    fn create(&mut self, dir: u128, text: &str) {
        self.op(Op::Create {
            dir: statement(dir),
            name: name(text),
            mode: Perm::new(0o644).into(),
            exclusive: true,
            want: 6,
        });
    }

    fn publish(&mut self, dir: u128, text: &str, object: u64, content: Content, size: u64) {
        self.op(Op::Publish {
            object: Object {
                dir: statement(dir),
                name: name(text),
                ino: Ino(object),
                generation: Generation(0),
            },
            content,
            size,
            mtime: None,
            base: None,
            handle: Handle(0),
        });
    }

    fn unlink(&mut self, dir: u128, text: &str, held: bool) {
        self.op(Op::Unlink {
            dir: statement(dir),
            name: name(text),
            held,
        });
    }

    fn rename(&mut self, (src, from): (u128, &str), (dst, to): (u128, &str), mode: RenameMode) {
        self.op(Op::Rename {
            src: statement(src),
            src_name: name(from),
            dst: statement(dst),
            dst_name: name(to),
            mode,
            held: false,
        });
    }
}

pub(super) fn all() -> Vec<Vec<u8>> {
    let mut scripts = vec![
        everything_once(),
        files(),
        directories(),
        renames(),
        attributes(),
        sessions(),
        retries(),
    ];
    // Every message there is, as it is, and put right.
    for flags in [TWICE, BOOT | STATEMENTS | OBJECTS | SEQUENCE, BOOT | OPERATES] {
        for message in requests()
            .into_iter()
            .chain(operations(ROOT).into_iter().map(ask))
        {
            let mut s = Script::new();
            s.ask(flags, message);
            scripts.push(s);
        }
    }
    let mut all: Vec<Vec<u8>> = scripts.into_iter().map(|s| s.bytes).collect();
    all.push(vec![1, 3, 0, 0xff, 0xff, 0xff]);
    all
}

fn everything_once() -> Script {
    let mut s = Script::new();
    for op in operations(ROOT) {
        s.op(op);
    }
    s
}

fn files() -> Script {
    let mut s = Script::new();
    s.create(ROOT, "f");
    s.publish(ROOT, "f", 1, Content::Inline(Blob(b"hello".to_vec())), 9);
    s.publish(ROOT, "f", 1, Content::Blocks(512), u64::MAX);
    s.unlink(ROOT, "f", true);
    s.pass(3);
    s.op(Op::Release {
        slot: Part::whole(pando_types::DirId::ROOT).slot(),
        ino: Ino(1),
        generation: Generation(0),
    });
    s.create(ROOT, "f");
    s.publish(ROOT, "f", 2, Content::Blocks(1 << 31), i64::MAX as u64);
    s.unlink(ROOT, "f", false);
    s.pass(200);
    s
}

fn directories() -> Script {
    let mut s = Script::new();
    for n in ["a", "b", "c", "d", "e", "f"] {
        s.mkdir(ROOT, n);
    }
    s.mkdir(SUB, "x");
    s.op(Op::ReadDir {
        dir: statement(ROOT),
        after: pando_format::Position::START,
        limit: 100,
        plus: true,
    });
    s.op(Op::Rmdir {
        dir: statement(ROOT),
        name: name("a"),
    });
    s.op(Op::Rmdir {
        dir: statement(SUB),
        name: name("x"),
    });
    s.op(Op::Rmdir {
        dir: statement(ROOT),
        name: name("a"),
    });
    s.mkdir(ROOT, "a");
    s.create(SUB, "gone");
    s
}

fn renames() -> Script {
    let mut s = Script::new();
    s.mkdir(ROOT, "a");
    s.mkdir(ROOT, "b");
    s.create(SUB, "f");
    s.rename((SUB, "f"), (SUB + 1, "g"), RenameMode::Replace);
    s.rename((ROOT, "a"), (SUB + 1, "a"), RenameMode::NoReplace);
    s.rename((ROOT, "b"), (SUB, "b"), RenameMode::Replace);
    s.rename((SUB + 1, "a"), (ROOT, "b"), RenameMode::Exchange);
    s.mkdir(ROOT, "a");
    s
}

fn attributes() -> Script {
    let mut s = Script::new();
    s.create(ROOT, "f");
    s.mkdir(ROOT, "d");
    for (text, object) in [("f", 1), ("d", 2)] {
        s.op(Op::SetAttr {
            object: Object {
                dir: statement(ROOT),
                name: name(text),
                ino: Ino(object),
                generation: Generation(0),
            },
            change: AttrChange {
                perm: Some(Perm::new(0o7777)),
                uid: Some(u32::MAX),
                gid: Some(5),
                size: (text == "f").then_some(u64::MAX),
                atime: Some(TimeChange::Now),
                mtime: Some(TimeChange::To(Timestamp {
                    secs: i64::MIN,
                    nanos: 999_999_999,
                })),
            },
            handle: Some(Handle(0)),
        });
    }
    s.create(SUB, "inside");
    s.op(Op::DirStat { dir: statement(SUB) });
    s
}

fn sessions() -> Script {
    let mut s = Script::new();
    s.create(ROOT, "f");
    s.unlink(ROOT, "f", true);
    s.pass(150);
    s.create(ROOT, "late");
    s.ask(BOOT, Request::OpenSession(SESSION));
    s.pass(255);
    s.ask(BOOT, Request::OpenSession(SESSION));
    s.create(ROOT, "again");
    s.ask(BOOT, Request::CloseSession(SESSION));
    s.ask(BOOT, Request::CloseSession(SESSION));
    s.pass(10);
    s
}

fn retries() -> Script {
    let mut s = Script::new();
    let create = |text: &str| {
        ask(Op::Create {
            dir: statement(ROOT),
            name: name(text),
            mode: Perm::new(0o644).into(),
            exclusive: true,
            want: 6,
        })
    };
    s.ask(BOOT | STATEMENTS | SEQUENCE | TWICE, create("f"));
    s.ask(BOOT | STATEMENTS, create("f"));
    s.ask(BOOT | STATEMENTS | SEQUENCE | TWICE, create("g"));
    s.ask(BOOT | STATEMENTS, create("f"));
    s
}

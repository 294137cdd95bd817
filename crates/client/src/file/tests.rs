//! The layer over a fake server and blocks in memory, against a plain vector of bytes.

mod append;
mod background;
mod count;
mod gather;
mod random;
mod room;
mod sharing;
mod waiting;

use super::*;
use pando_data::conformance::now as ready;
use pando_data::{BlockCall, Blocks, MemBlocks};
use pando_format::codec::Blob;
use pando_types::{Access, DirId, Generation, Ino, Part, Realm};
use pando_wire::{Answer, Content, Object, Said};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const KEY: FileKey = FileKey {
    ino: Ino(9),
    generation: Generation(4),
};

/// One file on a server, with the rules of the real one.
struct Server {
    view: EntryView,
    data: Option<Blob>,
    released: bool,
    block_size: u32,
}

#[derive(Clone)]
struct Fake {
    server: Rc<RefCell<Server>>,
    calls: Rc<Cell<u64>>,
    /// Fails the next so many operations.
    fail: Rc<Cell<u32>>,
    /// Another mount changes the file just before the next so many publishes.
    meddle: Rc<Cell<u32>>,
    /// Shows the bytes to who asks to read alone.
    shy: Rc<Cell<bool>>,
    /// Whether we may act as root.
    trusts: Rc<Cell<bool>>,
    /// Changes of attributes, but of the size.
    set: Rc<RefCell<Vec<AttrChange>>>,
}

const LIMIT: u32 = 64;

fn time(n: i64) -> Timestamp {
    Timestamp { secs: n, nanos: 0 }
}

fn place(name: &[u8]) -> Place {
    let dir = Statement::from(Said {
        id: DirId(77),
        realm: Realm(0),
        ..Said::above_root()
    });
    Place {
        dir,
        name: Name::new(name).unwrap(),
    }
}

impl Fake {
    fn new(block_size: u32) -> Fake {
        let attr = Attr {
            ino: KEY.ino,
            generation: KEY.generation,
            kind: FileKind::Regular,
            perm: Perm::new(0o4755),
            uid: 5,
            gid: 5,
            nlink: 1,
            size: 0,
            allocated: 0,
            rdev: 0,
            atime: time(0),
            mtime: time(0),
            ctime: time(0),
        };
        let view = EntryView {
            attr,
            dir: None,
            seal: None,
            layout: Layout::None,
            version: 1,
            home: None,
            xattrs: false,
            acl: None,
            lease: 0,
        };
        Fake {
            server: Rc::new(RefCell::new(Server {
                view,
                data: None,
                released: false,
                block_size,
            })),
            calls: Rc::default(),
            fail: Rc::default(),
            meddle: Rc::default(),
            shy: Rc::default(),
            trusts: Rc::default(),
            set: Rc::default(),
        }
    }

    fn act(&self, op: Op) -> Outcome {
        self.calls.set(self.calls.get() + 1);
        if self.fail.get() > 0 {
            self.fail.set(self.fail.get() - 1);
            return Err(Errno::Unreachable);
        }
        let mut s = self.server.borrow_mut();
        let s = &mut *s;
        let named = |name: &Name| {
            if name.as_bytes() == b"f" {
                Ok(())
            } else {
                Err(Errno::Stale)
            }
        };
        match op {
            Op::Open { name, want, .. } => {
                named(&name)?;
                let shown = !self.shy.get() || want & Access::READ.0 != 0;
                Ok(Answer::Opened {
                    kept: false,
                    entry: s.view.clone(),
                    data: s.data.clone().filter(|_| shown),
                    created: false,
                    handle: Some(pando_wire::Handle(1)),
                    proof: pando_wire::Handle(2),
                })
            }
            Op::SetAttr {
                object: Object { name, .. },
                change,
                ..
            } => {
                named(&name)?;
                let Some(size) = change.size else {
                    self.set.borrow_mut().push(change);
                    let attr = &mut s.view.attr;
                    attr.perm = change.perm.unwrap_or(attr.perm);
                    attr.uid = change.uid.unwrap_or(attr.uid);
                    if let Some(TimeChange::To(time)) = change.mtime {
                        attr.mtime = time;
                    }
                    return Ok(Answer::Entry(s.view.clone()));
                };
                s.view.layout = s.view.layout.resized(s.view.attr.size, size);
                if s.view.layout.is_inline() && size < s.view.attr.size {
                    let data = &mut s.data.as_mut().unwrap().0;
                    data.truncate(size as usize);
                    if size == 0 {
                        s.data = None;
                        s.view.layout = Layout::None;
                    }
                }
                s.view.attr.size = size;
                s.view.attr.allocated = s.view.layout.allocated(size);
                s.view.version += 1;
                Ok(Answer::Entry(s.view.clone()))
            }
            Op::Publish {
                object: Object { name, ino, .. },
                content,
                size,
                mtime,
                base,
                ..
            } => {
                named(&name)?;
                assert_eq!(ino, KEY.ino);
                if self.meddle.get() > 0 {
                    self.meddle.set(self.meddle.get() - 1);
                    s.view.version += 1;
                }
                if base.is_some_and(|base| base != s.view.version) {
                    return Err(Errno::Busy);
                }
                s.data = None;
                s.view.layout = match content {
                    Content::None => Layout::None,
                    Content::Inline(b) => {
                        assert!(b.0.len() as u64 <= size && b.0.len() <= LIMIT as usize);
                        let layout = Layout::inline(b.0.len() as u64, size);
                        s.data = Some(b);
                        layout
                    }
                    Content::Blocks(n) => {
                        assert!(n.is_power_of_two());
                        Layout::Blocks(n)
                    }
                    Content::Sparse {
                        block_size,
                        allocated,
                    } => {
                        assert!(allocated < size);
                        Layout::blocks(block_size, allocated, size)
                    }
                };
                s.view.attr.size = size;
                s.view.attr.allocated = s.view.layout.allocated(size);
                s.view.attr.mtime = mtime.unwrap();
                s.view.attr.perm = without_set_ids(s.view.attr.perm);
                s.view.version += 1;
                Ok(Answer::Entry(s.view.clone()))
            }
            Op::Release { ino, .. } => {
                assert_eq!(ino, KEY.ino);
                s.released = true;
                Ok(Answer::Done)
            }
            other => panic!("{}", other.kind()),
        }
    }
}

impl Ops for Fake {
    async fn op(&self, cred: &Cred, op: Op) -> Outcome {
        if cred.is_root() && !self.trusts.get() {
            return Err(Errno::Access);
        }
        self.act(op)
    }
    async fn sync_entry(&self, dir: &Statement, _: &Name) -> Result<(), Errno> {
        assert_eq!(dir.id, DirId(77));
        Ok(())
    }
    async fn sync_dir(&self, _: &Statement) -> Result<(), Errno> {
        Ok(())
    }
    fn slot_of(&self, dir: &Statement, _: &Name) -> Slot {
        Part::whole(dir.id).slot()
    }
    fn inline_limit(&self) -> u32 {
        LIMIT
    }
    fn block_size(&self) -> u32 {
        self.server.borrow().block_size
    }
}

/// A mount's view of the file, with everything run to its end.
struct Handle {
    ops: Fake,
    blocks: MemBlocks,
    file: OpenFile,
    clock: i64,
}

fn run<T>(f: impl Future<Output = T>) -> T {
    // Everything below completes inline.
    let mut f = std::pin::pin!(f);
    match f
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    {
        std::task::Poll::Ready(v) => v,
        std::task::Poll::Pending => panic!("waits"),
    }
}

fn user() -> Cred {
    Cred {
        uid: 5,
        gid: 5,
        groups: vec![],
    }
}

impl Handle {
    fn open(ops: &Fake, blocks: &MemBlocks, sync: DataSync) -> Handle {
        Handle::open_for(ops, blocks, sync, Access::READ)
    }
    fn open_for(ops: &Fake, blocks: &MemBlocks, sync: DataSync, want: Access) -> Handle {
        let opened = run(open(ops, &user(), &place(b"f"), want)).unwrap();
        let file = OpenFile::new(place(b"f"), opened, sync).unwrap();
        Handle {
            ops: ops.clone(),
            blocks: blocks.clone(),
            file,
            clock: 1,
        }
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.clock += 1;
        run(self
            .file
            .write(&self.ops, &self.blocks, &user(), offset, data, time(self.clock)))
    }
    fn punch(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        self.clock += 1;
        run(self
            .file
            .punch(&self.blocks, &user(), offset, len, time(self.clock)))
    }
    fn truncate(&mut self, size: u64, through_handle: bool) -> Result<(), Errno> {
        self.clock += 1;
        run(self.file.truncate(
            &self.ops,
            &self.blocks,
            &user(),
            size,
            time(self.clock),
            through_handle,
        ))
    }
    fn flush(&mut self) -> Result<(), Errno> {
        run(self.file.flush(&self.ops, &self.blocks, &user()))
    }
    fn fsync(&mut self) -> Result<(), Errno> {
        run(self.file.fsync(&self.ops, &self.blocks, &user()))
    }
    fn close(&mut self) -> Result<(), Errno> {
        run(self.file.close(&self.ops, &self.blocks, &user()))
    }
    fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        run(self.file.read(&self.blocks, offset, len)).unwrap()
    }
    fn all(&self) -> Vec<u8> {
        self.read(0, 1 << 20)
    }
}

fn new(block_size: u32) -> (Fake, MemBlocks, Handle) {
    let (ops, blocks) = (Fake::new(block_size), MemBlocks::new());
    let h = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    (ops, blocks, h)
}

#[test]
fn every_size_around_the_limit() {
    for block_size in [32, 64, 128] {
        for size in 0..=200_usize {
            let (ops, blocks, mut h) = new(block_size);
            let data: Vec<u8> = (0..size).map(|i| i as u8 | 1).collect();
            h.write(0, &data).unwrap();
            assert_eq!(h.all(), data);
            h.close().unwrap();
            let h = Handle::open(&ops, &blocks, DataSync::BeforePublish);
            assert_eq!(h.all(), data, "{size} bytes in blocks of {block_size}");
            let inline = size <= LIMIT as usize;
            assert_eq!(
                blocks.count(KEY),
                if inline {
                    0
                } else {
                    size.div_ceil(block_size as usize)
                }
            );
            assert_eq!(ops.server.borrow().view.attr.size, size as u64);
        }
    }
}

#[test]
fn truncates_across_the_limit() {
    for from in 0..=150_usize {
        for to in 0..=150_usize {
            let (ops, blocks, mut h) = new(32);
            h.write(0, &vec![7; from]).unwrap();
            if to % 2 == 0 {
                h.flush().unwrap();
            }
            h.truncate(to as u64, to % 3 == 0).unwrap();
            let mut want = vec![7; from];
            want.resize(to, 0);
            assert_eq!(h.all(), want);
            // And up again: what was cut is zeros.
            h.truncate(160, true).unwrap();
            want.resize(160, 0);
            assert_eq!(h.all(), want, "{from} to {to}");
            h.close().unwrap();
            assert_eq!(Handle::open(&ops, &blocks, DataSync::BeforePublish).all(), want);
        }
    }
}

#[test]
fn truncated_to_nothing_a_file_is_inline_again() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, &[1; 100]).unwrap();
    h.flush().unwrap();
    h.truncate(10, true).unwrap();
    h.write(0, b"x").unwrap();
    h.flush().unwrap();
    assert_eq!(ops.server.borrow().view.layout, Layout::Blocks(32));
    h.truncate(0, true).unwrap();
    assert_eq!(blocks.count(KEY), 0);
    h.write(2, b"x").unwrap();
    h.close().unwrap();
    assert_eq!(ops.server.borrow().view.layout, Layout::Inline);
    assert_eq!(ops.server.borrow().data, Some(Blob(b"\0\0x".to_vec())));
}

#[test]
fn unpublished_blocks_of_a_crashed_writer_never_show() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, &[1; 70]).unwrap();
    h.flush().unwrap();
    h.write(70, &[2; 500]).unwrap();
    drop(h);
    let mut h = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    assert_eq!(h.all(), [1; 70]);
    h.write(300, b"3").unwrap();
    let mut want = vec![1; 70];
    want.resize(300, 0);
    want.push(b'3');
    assert_eq!(h.all(), want);
    h.truncate(600, true).unwrap();
    want.resize(600, 0);
    assert_eq!(h.all(), want);
}

#[test]
fn a_failed_cut_never_shows() {
    let (_, blocks, mut h) = new(32);
    h.write(0, &[1; 200]).unwrap();
    h.flush().unwrap();
    blocks.set_faults(|_, _| Some(BlockError::Device("gone".into())));
    h.truncate(40, true).unwrap();
    blocks.clear_faults();
    h.truncate(120, true).unwrap();
    let mut want = vec![1; 40];
    want.resize(120, 0);
    assert_eq!(h.all(), want);
}

#[test]
fn data_is_safe_before_metadata() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, &[1; 100]).unwrap();
    h.flush().unwrap();
    h.truncate(70, true).unwrap();
    h.truncate(300, true).unwrap();
    blocks.power_failure();
    let mut want = vec![1; 70];
    want.resize(300, 0);
    assert_eq!(Handle::open(&ops, &blocks, DataSync::BeforePublish).all(), want);

    let mut h = Handle::open(&ops, &blocks, DataSync::OnFsync);
    h.write(0, &[2; 300]).unwrap();
    h.close().unwrap();
    // Written by another handle, asked for by this one.
    let mut h = Handle::open(&ops, &blocks, DataSync::OnFsync);
    h.fsync().unwrap();
    blocks.power_failure();
    assert_eq!(h.all(), [2; 300]);
}

#[test]
fn a_failed_sync_is_not_forgotten() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, &[1; 100]).unwrap();
    blocks.set_faults(|c, _| (c == BlockCall::Sync).then(|| BlockError::Device("EIO".into())));
    assert_eq!(h.flush(), Err(Errno::Io));
    blocks.clear_faults();
    assert_eq!(h.fsync(), Err(Errno::Io));
    assert_eq!(ops.server.borrow().view.attr.size, 0, "nothing was published");
}

#[test]
fn no_space_changes_nothing() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, b"small").unwrap();
    blocks.set_faults(|c, _| (c == BlockCall::Write).then_some(BlockError::NoSpace));
    assert_eq!(h.write(0, &[1; 100]), Err(Errno::NoSpace));
    assert_eq!(h.all(), b"small");
    blocks.clear_faults();
    h.close().unwrap();
    assert_eq!(ops.server.borrow().data, Some(Blob(b"small".to_vec())));
}

#[test]
fn nothing_here_waits() {
    // The tests above poll once; this pins why they may.
    ready(MemBlocks::new().write(KEY, 0, 0, vec![1])).unwrap();
}

#[test]
fn what_may_be_written_and_not_read_is_replaced_whole() {
    let (ops, blocks) = (Fake::new(16), MemBlocks::default());
    let sync = DataSync::BeforePublish;
    let mut first = Handle::open(&ops, &blocks, sync);
    first.write(0, b"secret").unwrap();
    first.close().unwrap();
    ops.shy.set(true);
    let writer = || Handle::open_for(&ops, &blocks, sync, Access::WRITE);
    let shown = || ops.server.borrow().data.clone().map(|d| d.0);

    let mut file = writer();
    assert_eq!(run(file.file.read(&file.blocks, 0, 6)), Err(Errno::Access));
    assert_eq!(file.write(6, b"!"), Err(Errno::Access));
    assert_eq!(file.write(0, b"short"), Err(Errno::Access));
    assert_eq!(file.punch(0, 2), Err(Errno::Access));
    file.flush().unwrap();
    assert_eq!(shown(), Some(b"secret".to_vec()));
    file.write(0, b"longer than that").unwrap();
    file.close().unwrap();
    assert_eq!(shown(), Some(b"longer than that".to_vec()));

    let mut file = writer();
    file.truncate(6, true).unwrap();
    assert_eq!(shown(), Some(b"longer".to_vec()));
    assert_eq!(file.write(1, b"x"), Err(Errno::Access));
    file.truncate(0, true).unwrap();
    file.write(2, b"x").unwrap();
    file.close().unwrap();
    assert_eq!(shown(), Some(b"\0\0x".to_vec()));

    // Larger than what is kept inline: if storing it fails, nothing is known of it still.
    let mut file = writer();
    ops.server.borrow_mut().block_size = 0;
    assert_eq!(file.write(0, &[7; 200]), Err(Errno::Io));
    assert_eq!(file.write(1, b"x"), Err(Errno::Access));
    ops.server.borrow_mut().block_size = 16;
    file.write(0, &[7; 200]).unwrap();
    file.close().unwrap();
    assert_eq!(Handle::open(&ops, &blocks, sync).all(), [7; 200]);

    // A mount for many users reads it for them.
    let mut file = writer();
    file.truncate(0, true).unwrap();
    file.write(0, b"secret").unwrap();
    file.close().unwrap();
    ops.trusts.set(true);
    let mut file = writer();
    file.write(6, b"!").unwrap();
    file.close().unwrap();
    assert_eq!(shown(), Some(b"secret!".to_vec()));
}

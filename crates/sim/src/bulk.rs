//! Bulk insertion, step by step: one client that has localised a directory, others who come, and tables that
//! are not what they say. No faults but those of a test, the judge watching.

use crate::births::{Program, on_a_cluster_of};
use crate::settings::Settings;
use pando_client::{Client, Going, Localised};
use pando_cluster::DirectoryUpdates;
use pando_data::{Blocks, FileKey};
use pando_format::codec::Blob;
use pando_format::{Key, Record, TABLE_BYTES_MAX, table_sum};
use pando_types::{Cred, DirId, Errno, Generation, Ids, Ino, Name, Part, Perm};
use pando_wire::{Answer, Bulk, Bulked, Content, EntryView, Handle, Object, Op, Outcome, Statement};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const CRED: fn() -> Cred = Cred::root;

fn on_indexfs<F: Future<Output = ()> + 'static>(program: impl FnOnce(Program) -> F + 'static) {
    let change = |settings: &mut Settings| {
        settings.ids = Ids::Placed;
        settings.id_bits = 128;
        settings.updates = DirectoryUpdates::ParentFirst;
    };
    on_a_cluster_of(change, program);
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn view(outcome: Outcome) -> EntryView {
    match outcome {
        Ok(Answer::Entry(view) | Answer::Opened { entry: view, .. }) => view,
        other => panic!("{other:?}"),
    }
}

fn create(dir: &Statement, text: &str) -> Op {
    Op::Create {
        dir: dir.clone(),
        name: name(text),
        mode: Perm::new(0o644).into(),
        exclusive: true,
        want: 0,
    }
}

fn mkdir(dir: &Statement, text: &str) -> Op {
    Op::Mkdir {
        dir: dir.clone(),
        name: name(text),
        mode: Perm::new(0o755).into(),
    }
}

impl Program {
    /// A new directory in the root, and its lease.
    async fn localised(&self, text: &str) -> (Statement, Localised) {
        let made = view(self.client.op(&CRED(), mkdir(&self.root, text)).await);
        let dir = made.dir.expect("a directory");
        let local = self.client.localize(&CRED(), &dir, Rc::new(self.blocks())).await;
        (dir, local.expect("localised"))
    }

    async fn step(&self, dir: &Statement, step: Bulk) -> Result<Bulked, Errno> {
        let dir = dir.clone();
        match self.client.op(&CRED(), Op::Bulk { dir, step }).await? {
            Answer::Bulk(bulked) => Ok(bulked),
            other => panic!("{other:?}"),
        }
    }

    async fn there(&self, path: &str) -> Result<EntryView, Errno> {
        let found = self.client.hold_path(&CRED(), path.as_bytes(), true).await?;
        Ok(found.entry)
    }
}

/// A directory with a file in it, and beside it a file with bytes and two symlinks.
fn fill(local: &mut Localised) {
    let dir = local.dir().clone();
    let sub = view(local.carry_out(&mkdir(&dir, "sub")))
        .dir
        .expect("a directory");
    view(local.carry_out(&create(&sub, "empty")));
    let file = view(local.carry_out(&create(&dir, "full")));
    view(local.carry_out(&Op::Publish {
        object: Object::shown(dir.clone(), name("full"), &file.attr),
        handle: Handle(0),
        content: Content::Inline(Blob(b"bytes".to_vec())),
        size: 5,
        mtime: None,
        base: None,
    }));
    for (text, len) in [("short", 5), ("long", 300)] {
        view(local.carry_out(&Op::Symlink {
            dir: dir.clone(),
            name: name(text),
            target: Blob(vec![b't'; len]),
        }));
    }
}

/// Makes something in a directory as somebody else would.
async fn intrude(client: Rc<Client>, path: &str, text: &str) {
    let found = client
        .hold_path(&CRED(), path.as_bytes(), true)
        .await
        .expect("there");
    let dir = found.entry.dir.expect("a directory");
    view(client.op(&CRED(), create(&dir, text)).await);
}

#[test]
fn a_tree_comes_whole_with_each_batch() {
    on_indexfs(|p| async move {
        let (dir, mut local) = p.localised("d").await;
        fill(&mut local);
        assert_eq!(local.carry_out(&create(&dir, "full")), Err(Errno::Exists));
        assert_eq!(p.stored(&Key::Touch(dir.id.into())).map(entries), Some(0));
        local.insert().await.expect("inserted");
        p.walk();
        assert_eq!(p.stored(&Key::Touch(dir.id.into())).map(entries), Some(4));
        // What is inserted is the server's; what is new may come into it.
        assert_eq!(local.carry_out(&create(&dir, "full")), Err(Errno::Busy));
        let lookup = Op::Lookup {
            dir: dir.clone(),
            name: name("sub"),
        };
        let sub = view(local.carry_out(&lookup)).dir.expect("a directory");
        view(local.carry_out(&create(&sub, "later")));
        let deep = view(local.carry_out(&mkdir(&sub, "deep")))
            .dir
            .expect("a directory");
        view(local.carry_out(&create(&deep, "deepest")));
        assert_eq!(local.give_back().await, Ok(8));
        p.walk();
        for path in ["/d/full", "/d/sub/empty", "/d/sub/later", "/d/sub/deep/deepest"] {
            p.there(path).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        // Afterwards it is a directory as any other.
        assert_eq!(p.stored(&Key::Local(dir.id.into())), None);
        let found = p
            .there("/d/sub/deep")
            .await
            .expect("there")
            .dir
            .expect("a directory");
        view(p.client.op(&CRED(), create(&found, "more")).await);
        p.wait(Duration::from_secs(60)).await;
        assert_eq!(p.garbage(), 0);
    });
}

fn entries(record: Record) -> u64 {
    match record {
        Record::Touch(touch) => touch.stat.entries,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_comes_in_ends_the_lease_and_waits_for_it() {
    on_indexfs(|p| async move {
        let (dir, mut local) = p.localised("d").await;
        fill(&mut local);
        let over = p.beside(7, |client| async move { intrude(client, "/d", "theirs").await });
        let mut going = Going::On;
        while going == Going::On {
            p.settle().await;
            assert!(!over.get(), "nobody comes in before");
            going = local.tend().await.expect("it is ours");
        }
        p.until(&over).await;
        p.walk();
        assert_eq!(local.carry_out(&create(&dir, "late")), Err(Errno::Busy));
        for path in ["/d/full", "/d/sub/empty", "/d/theirs"] {
            p.there(path).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        // Nobody localises what is not empty, or what is somebody's.
        let again = p.client.localize(&CRED(), &dir, Rc::new(p.blocks())).await;
        assert_eq!(again.err(), Some(Errno::NotEmpty));
    });
}

#[test]
fn who_comes_late_inserts_nothing() {
    on_indexfs(|p| async move {
        let (dir, mut local) = p.localised("d").await;
        fill(&mut local);
        // Its time is over, and nobody came: it goes on.
        p.wait(Duration::from_secs(20)).await;
        assert_eq!(local.tend().await, Ok(Going::On));
        // Somebody comes, and then its time is over.
        let over = p.beside(7, |client| async move { intrude(client, "/d", "theirs").await });
        p.until(&over).await;
        assert_eq!(local.insert().await, Err(Errno::Stale));
        assert_eq!(local.tend().await, Err(Errno::Stale));
        let lease = local.lease();
        assert_eq!(p.step(&dir, Bulk::Return { lease }).await, Err(Errno::Stale));
        assert_eq!(local.give_back().await, Err(Errno::Stale));
        assert_eq!(p.there("/d/full").await.err(), Some(Errno::NotFound));
        // The table that was written after all goes with its note; what is written later has none.
        p.walk();
        // Removal waits, too, and then what was made belongs to nothing.
        let (_, mut gone) = p.localised("gone").await;
        fill(&mut gone);
        let over = p.beside(8, |client| async move {
            let root = client.hold_path(&CRED(), b"/", true).await.expect("the root");
            let op = Op::Rmdir {
                dir: root.entry.dir.expect("a directory"),
                name: name("gone"),
            };
            client.op(&CRED(), op).await.expect("removed");
        });
        p.until(&over).await;
        assert_eq!(gone.insert().await, Err(Errno::Stale));
        p.walk();
    });
}

#[test]
fn a_lease_outlives_its_server() {
    on_indexfs(|p| async move {
        let (dir, mut local) = p.localised("d").await;
        fill(&mut local);
        let server = p.server_of(Part::whole(dir.id).slot());
        p.restart(server).await;
        let over = p.beside(7, |client| async move { intrude(client, "/d", "theirs").await });
        p.settle().await;
        assert!(!over.get(), "the lease is known");
        assert_eq!(local.give_back().await, Ok(5));
        p.until(&over).await;
        p.restart(server).await;
        p.walk();
        p.there("/d/sub/empty")
            .await
            .expect("synced when it was answered");
    });
}

#[test]
fn a_client_that_is_gone_leaves_nothing() {
    on_indexfs(|p| async move {
        let over = p.beside(7, |client| async move {
            let root = client.hold_path(&CRED(), b"/", true).await.expect("the root");
            let root = root.entry.dir.expect("a directory");
            let made = view(client.op(&CRED(), mkdir(&root, "d")).await);
            let dir = made.dir.expect("a directory");
            let mut local = client
                .localize(&CRED(), &dir, Rc::new(pando_data::MemBlocks::new()))
                .await
                .expect("localised");
            fill(&mut local);
            client.close().await;
        });
        p.until(&over).await;
        p.wait(Duration::from_secs(60)).await;
        assert_eq!(p.garbage(), 0);
        let over = p.beside(8, |client| async move { intrude(client, "/d", "theirs").await });
        p.until(&over).await;
        p.walk();
    });
}

/// A table that a client has put into the block store, and what is said of it.
struct Said {
    lease: Generation,
    batch: u64,
    bytes: Vec<u8>,
}

impl Said {
    fn insert(&self) -> Bulk {
        Bulk::Insert {
            lease: self.lease,
            batch: self.batch,
            bytes: self.bytes.len() as u32,
            sum: table_sum(&self.bytes),
        }
    }
}

/// Keeps what was written last, and writes it where it belongs.
struct Overheard {
    inner: pando_data::MemBlocks,
    last: Rc<RefCell<(Ino, Vec<u8>)>>,
}

impl Blocks for Overheard {
    fn read(&self, f: FileKey, b: u64, o: u32, l: u32) -> pando_data::LocalFuture<Read> {
        self.inner.read(f, b, o, l)
    }
    fn write(&self, f: FileKey, b: u64, o: u32, data: Vec<u8>) -> pando_data::LocalFuture<Done> {
        let mut last = self.last.borrow_mut();
        last.0 = f.ino;
        if b == 0 {
            last.1.clear();
        }
        last.1.extend(&data);
        self.inner.write(f, b, o, data)
    }
    fn truncate(&self, f: FileKey, b: u64, l: u32) -> pando_data::LocalFuture<Done> {
        self.inner.truncate(f, b, l)
    }
    fn sync(&self, f: FileKey, b: Vec<u64>) -> pando_data::LocalFuture<Done> {
        self.inner.sync(f, b)
    }
    fn present(
        &self,
        f: FileKey,
        a: u64,
        b: u64,
    ) -> pando_data::LocalFuture<Result<Vec<u64>, pando_data::BlockError>> {
        self.inner.present(f, a, b)
    }
    fn stored(
        &self,
        f: FileKey,
        a: u64,
        b: u64,
    ) -> pando_data::LocalFuture<Result<Vec<pando_data::StoredBlock>, pando_data::BlockError>> {
        self.inner.stored(f, a, b)
    }
    fn remove(&self, f: FileKey, a: u64, b: u64) -> pando_data::LocalFuture<Done> {
        self.inner.remove(f, a, b)
    }
    fn room(&self) -> pando_data::LocalFuture<Result<Option<u64>, pando_data::BlockError>> {
        self.inner.room()
    }
}

type Read = Result<Vec<u8>, pando_data::BlockError>;
type Done = Result<(), pando_data::BlockError>;

#[test]
fn a_table_that_is_not_what_is_said_is_refused() {
    on_indexfs(|p| async move {
        let made = view(p.client.op(&CRED(), mkdir(&p.root, "d")).await);
        let dir = made.dir.expect("a directory");
        let blocks = Rc::new(Overheard {
            inner: p.blocks(),
            last: Rc::new(RefCell::new((Ino(0), Vec::new()))),
        });
        let local = p.client.localize(&CRED(), &dir, blocks.clone()).await;
        let mut local = local.expect("localised");
        fill(&mut local);
        local.insert().await.expect("inserted");
        let (ino, bytes) = blocks.last.borrow().clone();
        let lease = local.lease();
        let said = |batch, bytes: &[u8]| Said {
            lease,
            batch,
            bytes: bytes.to_vec(),
        };
        // Once more it is answered as done (H56).
        let again = p.step(&dir, said(0, &bytes).insert()).await;
        assert_eq!(again, Ok(Bulked::Inserted { entries: 0 }));
        // As another batch it has numbers that were used (H311); a batch that is left out is none.
        assert_eq!(p.step(&dir, said(1, &bytes).insert()).await, Err(Errno::Invalid));
        assert_eq!(p.step(&dir, said(2, &bytes).insert()).await, Err(Errno::Invalid));
        // Something else lies there (H310).
        let file = FileKey {
            ino,
            generation: lease,
        };
        let other = [&bytes[..bytes.len() - 1], b"!"].concat();
        blocks.write(file, 0, 0, other).await.expect("written");
        assert_eq!(p.step(&dir, said(1, &bytes).insert()).await, Err(Errno::Invalid));
        // Nothing, too little, and too much.
        assert_eq!(p.step(&dir, said(1, &[]).insert()).await, Err(Errno::Invalid));
        let longer = [&bytes[..], b"more"].concat();
        assert_eq!(p.step(&dir, said(1, &longer).insert()).await, Err(Errno::Invalid));
        let most = Bulk::Insert {
            lease,
            batch: 1,
            bytes: TABLE_BYTES_MAX + 1,
            sum: [0; 32],
        };
        assert_eq!(p.step(&dir, most).await, Err(Errno::Invalid));
        // Another lease, and another directory by this one.
        let forged = Said {
            lease: Generation(lease.0 + 1),
            ..said(1, &bytes)
        };
        assert_eq!(p.step(&dir, forged.insert()).await, Err(Errno::Stale));
        assert_eq!(p.step(&p.root, said(1, &bytes).insert()).await, Err(Errno::Stale));
        let renewed = Bulk::Renew { lease, more: true };
        assert_eq!(p.step(&p.root, renewed).await, Err(Errno::Stale));
        assert_eq!(p.step(&p.root, Bulk::Localize).await, Err(Errno::NotEmpty));
        // Another session.
        let (theirs, shown) = (said(1, &bytes), dir.id);
        let over = p.beside(
            7,
            move |client| async move { another(client, shown, theirs).await },
        );
        p.until(&over).await;
        assert_eq!(local.give_back().await, Ok(5));
        p.walk();
    });
}

/// Another client names a lease that is not its own.
async fn another(client: Rc<Client>, id: DirId, said: Said) {
    let found = client.hold_path(&CRED(), b"/d", true).await.expect("there");
    let dir = found.entry.dir.expect("a directory");
    assert_eq!(dir.id, id);
    let lease = said.lease;
    for step in [
        said.insert(),
        Bulk::Renew { lease, more: false },
        Bulk::Return { lease },
    ] {
        let dir = dir.clone();
        let outcome = client.op(&CRED(), Op::Bulk { dir, step }).await;
        assert_eq!(outcome, Err(Errno::Stale));
    }
}

#[test]
fn directories_that_cannot_be_localised_say_so() {
    on_a_cluster_of(
        |settings| settings.ids = Ids::Predicted,
        |p| async move {
            let made = view(p.client.op(&CRED(), mkdir(&p.root, "d")).await);
            let dir = made.dir.expect("a directory");
            assert_eq!(p.step(&dir, Bulk::Localize).await, Err(Errno::Unsupported));
        },
    );
}

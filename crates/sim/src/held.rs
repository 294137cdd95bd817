//! Removed files that are held open where it is not easy (H97). No faults, one client, the judge watching.

use crate::births::{Program, named, on_a_cluster};
use pando_client::Kept;
use pando_types::{Cred, Part, Perm, ServerId, Slot};
use pando_wire::{Op, RenameMode, Statement};
use std::time::Duration;

impl Program {
    /// A directory whose names are on another server than those of `than`, if any is said.
    async fn dir_elsewhere(&self, than: Option<ServerId>) -> Statement {
        for n in 0.. {
            let path = format!("/{}{n}", if than.is_some() { 'b' } else { 'a' });
            let (cred, perm) = (Cred::root(), Perm::new(0o755));
            self.client
                .mkdir(&cred, path.as_bytes(), perm)
                .await
                .expect("made");
            let dir = self.client.dir(&cred, path.as_bytes()).await.expect("there");
            if than != Some(self.owner_of(Part::whole(dir.id).slot())) {
                return dir;
            }
        }
        unreachable!("some are elsewhere")
    }

    fn owner_of(&self, slot: Slot) -> ServerId {
        self.client.map().owner(slot)
    }

    /// Opens a file for reading, to be kept.
    async fn open_kept(&self, dir: &Statement, name: &str) -> Kept {
        let op = Op::Open {
            dir: dir.clone(),
            name: named(name),
            want: 4,
        };
        let (_, kept) = self.client.op_open(&Cred::root(), op).await;
        kept.expect("it is kept")
    }
}

/// A file is replaced by one whose server is another, which alone is asked: the server of the replaced one
/// hears of who holds it only with the transaction.
#[test]
fn a_file_that_is_replaced_from_another_server_stays_while_it_is_held() {
    on_a_cluster(128, |p| async move {
        let from = p.dir_elsewhere(None).await;
        let to = p
            .dir_elsewhere(Some(p.owner_of(Part::whole(from.id).slot())))
            .await;
        p.make_file(&from, "f").await;
        p.make_file(&to, "g").await;
        // As another mount would be, which has asked nobody for anything.
        p.client.close().await;
        let replaced = p.op(Op::Rename {
            src: from,
            src_name: named("f"),
            dst: to,
            dst_name: named("g"),
            mode: RenameMode::Replace,
            held: true,
        });
        replaced.await.expect("renamed");
        for _ in 0..30 {
            p.wait(Duration::from_secs(5)).await;
            p.client.keep_alive().await;
            assert_eq!(p.garbage(), 1, "it is gone, and held");
        }
        p.client.close().await;
        p.wait(Duration::from_secs(30)).await;
        assert_eq!(p.garbage(), 0, "nobody holds it");
    });
}

/// A mount does not know of all names of a file that it has open: what it takes for another's is its own, and
/// stays.
#[test]
fn a_file_stays_that_is_open_by_another_name_where_its_last_is_removed() {
    on_a_cluster(128, |p| async move {
        let dir = p.dir_elsewhere(None).await;
        p.make_file(&dir, "f").await;
        let kept = p.open_kept(&dir, "f").await;
        let removed = p.op(Op::Unlink {
            dir,
            name: named("f"),
            held: false,
        });
        removed.await.expect("removed");
        p.wait(Duration::from_secs(30)).await;
        p.client
            .find_home(&Cred::root(), &kept)
            .await
            .expect("it is there");
        let again = kept.file();
        drop(kept);
        p.client.tell_closed().await;
        p.wait(Duration::from_secs(30)).await;
        assert_eq!(p.orphans(again.ino), 0, "nobody has it open");
    });
}

/// A server that has started again takes every file for open by those it knew, until they say what they have:
/// who removes a file there says it first, and the file goes at once.
#[test]
fn what_is_removed_where_a_server_has_started_again_does_not_stay() {
    on_a_cluster(128, |p| async move {
        let dir = p.dir_elsewhere(None).await;
        let server = p.owner_of(Part::whole(dir.id).slot());
        p.make_file(&dir, "f").await;
        let file = p.open_kept(&dir, "f").await.file();
        p.client.tell_closed().await;
        p.restart(server).await;
        let (name, held) = (named("f"), false);
        p.op(Op::Unlink { dir, name, held }).await.expect("removed");
        assert_eq!(p.orphans(file.ino), 0, "nobody has it open");
    });
}

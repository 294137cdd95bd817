//! Locks on files, asked for by who may not have them, and others' locks.

use super::arena::{ALICE, MALLORY, alice, mallory};
use super::speaker::Speaker;
use super::{Arena, Cell, cell};
use pando_types::{Hold, IdentityId, LockFamily, MapEpoch, SessionId, Span};
use pando_wire::{
    EntryView, FileLockAnswer, FileLockRequest, Handle, LockPlace, Request, Response, WantedLock,
};
use std::rc::Rc;

/// A setting, at the server that keeps the locks of a file.
struct Setting {
    session: SessionId,
    turn: u64,
    lock: WantedLock,
}

impl Setting {
    fn new(whose: IdentityId, file: &EntryView, proof: Handle, turn: u64, hold: Option<Hold>) -> Setting {
        let place = LockPlace {
            ino: file.attr.ino,
            generation: file.attr.generation,
            family: LockFamily::Flock,
            token: 1,
        };
        Setting {
            session: SessionId::for_locks(whose, 1),
            turn,
            lock: WantedLock {
                place,
                proof,
                span: Span::ALL,
                hold,
                pid: 1,
            },
        }
    }

    async fn ask(&self, s: &Speaker) -> Option<FileLockAnswer> {
        let request = FileLockRequest::Set {
            session: self.session,
            turn: self.turn,
            map: MapEpoch(1),
            lock: self.lock,
            wait: false,
        };
        let server = s.owner(self.lock.place.ino.slot());
        match s.ask(server, &Request::Lock(request)).await? {
            Response::Lock(answer) => Some(answer),
            _ => None,
        }
    }

    async fn open(&self, s: &Speaker) -> Option<()> {
        let server = s.owner(self.lock.place.ino.slot());
        s.ask(server, &Request::OpenSession(self.session))
            .await
            .map(|_| ())
    }

    async fn done(&self, s: &Speaker) -> Option<()> {
        (self.ask(s).await? == FileLockAnswer::Done).then_some(())
    }
}

const EXCLUSIVE: Option<Hold> = Some(Hold::Exclusive);

/// Alice and Mallory have opened a file; Alice has locked it, by her second setting.
async fn locked(a: &Arena) -> Option<(EntryView, Handle, Handle)> {
    let hers = a.alice.find(&alice(), "/open").await?;
    let mine = a.mallory.find(&mallory(), "/open").await?;
    let (file, proof) = a.alice.opened(&alice(), &hers, "notes", 4).await?;
    let (_, other) = a.mallory.opened(&mallory(), &mine, "notes", 4).await?;
    let lock = Setting::new(ALICE, &file, proof, 2, EXCLUSIVE);
    lock.open(&a.alice).await?;
    Setting::new(ALICE, &file, proof, 1, None).done(&a.alice).await?;
    lock.done(&a.alice).await?;
    Some((file, proof, other))
}

/// Whether Mallory can have what Alice had.
async fn is_free(a: &Arena, file: &EntryView, proof: Handle) -> Option<()> {
    let lock = Setting::new(MALLORY, file, proof, 1, EXCLUSIVE);
    lock.open(&a.mallory).await?;
    lock.done(&a.mallory).await
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "lock",
        "file that was not opened, made-up proof",
        ["G72"],
        "locks out those who may use a file",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/open").await?;
            let file = a.mallory.view(&mallory(), &dir, "hers").await?;
            let lock = Setting::new(MALLORY, &file, Handle(7), 1, EXCLUSIVE);
            lock.open(&a.mallory).await?;
            a.mark().await;
            lock.done(&a.mallory).await
        }
    ),
    cell!(
        "lock",
        "file that was not opened, another's proof",
        ["G72"],
        "locks out those who may use a file",
        async |a: Rc<Arena>| {
            let hers = a.alice.find(&alice(), "/open").await?;
            let (file, proof) = a.alice.opened(&alice(), &hers, "hers", 4).await?;
            let lock = Setting::new(MALLORY, &file, proof, 1, EXCLUSIVE);
            lock.open(&a.mallory).await?;
            a.mark().await;
            lock.done(&a.mallory).await
        }
    ),
    cell!(
        "lock",
        "another session's, given up",
        ["G73"],
        "takes another's lock away",
        async |a: Rc<Arena>| {
            let (file, _, proof) = locked(&a).await?;
            a.mark().await;
            Setting::new(ALICE, &file, proof, 3, None)
                .done(&a.mallory)
                .await?;
            is_free(&a, &file, proof).await
        }
    ),
    cell!(
        "lock",
        "another's setting, repeated as it was",
        ["G72", "G73", "G75"],
        "takes another's lock away",
        async |a: Rc<Arena>| {
            let (file, hers, proof) = locked(&a).await?;
            a.mark().await;
            Setting::new(ALICE, &file, hers, 1, None).done(&a.mallory).await?;
            is_free(&a, &file, proof).await
        }
    ),
    cell!(
        "lock",
        "more than a session may have",
        ["G74"],
        "fills a server's memory",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/open").await?;
            let (file, proof) = a.mallory.opened(&mallory(), &dir, "notes", 4).await?;
            let mut lock = Setting::new(MALLORY, &file, proof, 1, Some(Hold::Shared));
            lock.open(&a.mallory).await?;
            a.mark().await;
            for n in 1..=40 {
                (lock.turn, lock.lock.place.token) = (n, n);
                lock.done(&a.mallory).await?;
            }
            Some(())
        }
    ),
    cell!(
        "lock",
        "all of them listed",
        ["G2"],
        "learns what others have locked",
        async |a: Rc<Arena>| {
            let (file, _, _) = locked(&a).await?;
            a.mark().await;
            let server = a.mallory.owner(file.attr.ino.slot());
            match a
                .mallory
                .ask(server, &Request::Lock(FileLockRequest::List(10)))
                .await?
            {
                Response::Lock(FileLockAnswer::Locks(all)) if !all.is_empty() => Some(()),
                _ => None,
            }
        }
    ),
];

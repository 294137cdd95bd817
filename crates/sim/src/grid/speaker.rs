//! Somebody who speaks the protocol by hand: no cache, no checks, no manners. Honest parties of the grid
//! speak like this too, so that everything they were told can be stolen from them.

use crate::cluster::Cluster;
use crate::world::{Life, MS, Role, SEC};
use pando_auth::seal;
use pando_cluster::ClusterMap;
use pando_env::{Caller, Env, Node, Peer};
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_types::{
    Access, AttrChange, BootEpoch, Cred, DirId, IdentityId, Instance, MapEpoch, Name, Part, PeerId, Perm,
    RequestId, RequestSlot, Sequence, ServerId, SessionId, Slot,
};
use pando_wire::{
    Answer, Content, EntryView, Fate, Handle, Message, Object, Op, OpRequest, Probe, Refusal, RenameMode,
    Request, Response, SealKey, Statement,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// How long one answer is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Tries while a server is busy.
const TRIES: usize = 8;

/// A mutating request as it was sent, and what was answered.
#[derive(Clone)]
pub struct Said {
    /// To whom.
    pub server: ServerId,
    /// What.
    pub request: Request,
    /// What came of it.
    pub answer: Option<Answer>,
}

/// One end of a conversation with servers.
pub struct Speaker {
    /// Its process.
    pub life: Rc<Life>,
    /// The instance its statements are given to.
    pub instance: Cell<Instance>,
    /// Its session.
    pub session: SessionId,
    /// The last mutating request.
    pub last: RefCell<Option<Said>>,
    /// The last thing it was told that was not what it wanted.
    pub refused: RefCell<String>,
    map: Rc<ClusterMap>,
    calls: Caller<Result<Response, Refusal>>,
    boots: RefCell<BTreeMap<ServerId, BootEpoch>>,
    opened: RefCell<BTreeSet<ServerId>>,
    sequence: Cell<u64>,
}

impl Node for Speaker {
    fn receive(&self, _from: Peer, message: Vec<u8>) {
        if let Ok(Message::Reply { id, result, .. }) = Message::from_bytes(&message) {
            self.calls.complete(id, result);
        }
    }

    fn disconnected(&self, peer: Peer) {
        self.calls.disconnected(peer);
    }
}

/// A name.
pub fn named(text: &str) -> Option<Name> {
    Name::new(text.as_bytes()).ok()
}

impl Speaker {
    /// On a machine of its own, whose connections prove this.
    pub fn new(cluster: &Rc<Cluster>, number: u16, who: PeerId) -> Rc<Speaker> {
        let node = cluster.sim.machine(Role::Client(number));
        cluster.sim.net.borrow_mut().identify(node, who);
        cluster.sim.net.borrow_mut().distrust(node);
        let life = cluster.sim.start(node);
        let id = match who {
            PeerId::Client(id) => id,
            PeerId::Server(_) | PeerId::Operator => IdentityId::ANYONE,
        };
        let speaker = Rc::new(Speaker {
            instance: Cell::new(Instance(u128::from(life.random()))),
            session: SessionId::of(id, u128::from(life.random())),
            last: RefCell::new(None),
            refused: RefCell::default(),
            map: cluster.map(),
            calls: Caller::new(life.world()),
            boots: RefCell::default(),
            opened: RefCell::default(),
            sequence: Cell::new(0),
            life: life.clone(),
        });
        life.set_receiver(speaker.clone());
        speaker
    }

    /// Lets time pass.
    pub async fn sleep(&self, ms: u64) {
        self.life.sleep(Duration::from_nanos(ms * MS)).await;
    }

    /// The server a directory's content is on.
    pub fn home(&self, dir: DirId) -> ServerId {
        self.map.owner(Part::whole(dir).slot())
    }

    /// The server of a slot.
    pub fn owner(&self, slot: Slot) -> ServerId {
        self.map.owner(slot)
    }

    /// The boot of a server, as far as is known here.
    pub fn boot(&self, server: ServerId) -> BootEpoch {
        self.boots.borrow().get(&server).copied().unwrap_or_default()
    }

    /// Says a message as it is, and waits for nothing.
    pub fn say(&self, server: ServerId, message: &Message) {
        self.life.send(Peer::Server(server), message.to_bytes());
    }

    /// Asks once with this boot. `None`: silence.
    pub async fn ask_boot(
        &self,
        server: ServerId,
        boot: BootEpoch,
        request: &Request,
    ) -> Option<Result<Response, Refusal>> {
        let encode = |id| {
            let request = request.clone();
            Message::Request {
                id,
                boot,
                request,
                explain: false,
            }
            .to_bytes()
        };
        let answer = self.calls.call(Peer::Server(server), PATIENCE, encode).await.ok();
        if let Some(Err(Refusal::WrongBoot(now))) = answer {
            self.boots.borrow_mut().insert(server, now);
        }
        answer
    }

    /// Asks until a server of this boot answers something other than that it is busy.
    pub async fn ask(&self, server: ServerId, request: &Request) -> Option<Response> {
        for _ in 0..TRIES {
            match self.ask_boot(server, self.boot(server), request).await {
                Some(Ok(response)) => return Some(response),
                Some(Err(Refusal::WrongBoot(_))) => {}
                Some(Err(Refusal::Busy | Refusal::NotReady)) => self.sleep(30).await,
                Some(Err(why)) => {
                    *self.refused.borrow_mut() = format!("{why:?}");
                    return None;
                }
                None => {
                    *self.refused.borrow_mut() = "silence".into();
                    return None;
                }
            }
        }
        *self.refused.borrow_mut() = "busy".into();
        None
    }

    /// The next name of a request in a lane.
    pub fn request(&self, lane: u16) -> RequestId {
        self.sequence.set(self.sequence.get() + 1);
        RequestId {
            session: self.session,
            slot: RequestSlot(lane),
            sequence: Sequence(self.sequence.get()),
        }
    }

    /// A request for an operation, as this one says it.
    pub fn asking(&self, request: Option<RequestId>, cred: &Cred, op: &Op, ways: &[Statement]) -> Request {
        OpRequest {
            parts: [0, 0],
            keep: None,
            request,
            again: false,
            map: MapEpoch(1),
            instance: self.instance.get(),
            cred: cred.clone(),
            op: op.clone(),
            ways: ways.to_vec(),
        }
        .into()
    }

    /// Asks for an operation; the answer, if it was done.
    pub async fn op(&self, cred: &Cred, op: Op) -> Option<Answer> {
        self.op_with(cred, op, &[]).await
    }

    /// The same with statements that others hang on.
    pub async fn op_with(&self, cred: &Cred, op: Op, ways: &[Statement]) -> Option<Answer> {
        let home = op.home().map_or(ServerId(1), |slot| self.map.owner(slot));
        for server in [home, self.map.coordinator] {
            let request = op.mutates().then(|| self.request(0));
            if request.is_some() {
                self.open_session(server).await?;
            }
            let asked = self.asking(request, cred, &op, ways);
            *self.refused.borrow_mut() = String::new();
            let answer = match self.ask(server, &asked).await {
                Some(response) => outcome(self, response),
                None => None,
            };
            if request.is_some() {
                *self.last.borrow_mut() = Some(Said {
                    server,
                    request: asked,
                    answer: answer.clone(),
                });
            }
            if answer.is_some() || *self.refused.borrow() != "UseCoordinator" {
                return answer;
            }
        }
        None
    }

    /// Registers the session.
    pub async fn open_session(&self, server: ServerId) -> Option<()> {
        if !self.opened.borrow().contains(&server) {
            self.ask(server, &Request::OpenSession(self.session)).await?;
            self.opened.borrow_mut().insert(server);
        }
        Some(())
    }

    /// The entry of a name.
    pub async fn view(&self, cred: &Cred, dir: &Statement, name: &str) -> Option<EntryView> {
        let (dir, name) = (dir.clone(), named(name)?);
        match self.op(cred, Op::Lookup { dir, name }).await? {
            Answer::Entry(view) => Some(view),
            _ => None,
        }
    }

    /// A directory by its path, from the root.
    pub async fn find(&self, cred: &Cred, path: &str) -> Option<Statement> {
        let root = Op::Lookup {
            dir: Statement::above_root(),
            name: Name::root(),
        };
        let Answer::Entry(view) = self.op(cred, root).await? else {
            return None;
        };
        let mut dir = view.dir?;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            dir = self.view(cred, &dir, name).await?.dir?;
        }
        Some(dir)
    }

    /// Makes a directory.
    pub async fn mkdir(&self, cred: &Cred, dir: &Statement, name: &str, perm: u16) -> Option<Statement> {
        let (dir, name, perm) = (dir.clone(), named(name)?, Perm::new(perm));
        match self
            .op(
                cred,
                Op::Mkdir {
                    dir,
                    name,
                    mode: perm.into(),
                },
            )
            .await?
        {
            Answer::Entry(view) => view.dir,
            _ => None,
        }
    }

    /// Makes a file and gives its entry and handle.
    pub async fn create(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &str,
        perm: u16,
    ) -> Option<(EntryView, Handle)> {
        let op = Op::Create {
            dir: dir.clone(),
            name: named(name)?,
            mode: Perm::new(perm).into(),
            exclusive: true,
            want: 6,
        };
        match self.op(cred, op).await? {
            Answer::Opened {
                entry,
                handle: Some(handle),
                ..
            } => Some((entry, handle)),
            _ => None,
        }
    }

    /// Makes a file with these bytes in it.
    pub async fn write(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &str,
        perm: u16,
        text: &str,
    ) -> Option<EntryView> {
        let (entry, handle) = self.create(cred, dir, name, perm).await?;
        self.publish(cred, dir, name, &entry, handle, text).await?;
        Some(entry)
    }

    /// Replaces the content of a file through a handle.
    pub async fn publish(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &str,
        file: &EntryView,
        handle: Handle,
        text: &str,
    ) -> Option<Answer> {
        let op = Op::Publish {
            object: Object::shown(dir.clone(), named(name)?, &file.attr),
            handle,
            content: Content::Inline(Blob(text.as_bytes().to_vec())),
            size: text.len() as u64,
            mtime: None,
            base: None,
        };
        self.op(cred, op).await
    }

    /// Opens a file. Its bytes, and the handle.
    pub async fn open(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &str,
        want: u8,
    ) -> Option<(EntryView, Vec<u8>, Option<Handle>)> {
        let (dir, name) = (dir.clone(), named(name)?);
        match self.op(cred, Op::Open { dir, name, want }).await? {
            Answer::Opened {
                entry, data, handle, ..
            } => Some((entry, data.map(|d| d.0).unwrap_or_default(), handle)),
            _ => None,
        }
    }

    /// Opens a file. Its entry, and the proof of that.
    pub async fn opened(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &str,
        want: u8,
    ) -> Option<(EntryView, Handle)> {
        let (dir, name) = (dir.clone(), named(name)?);
        match self.op(cred, Op::Open { dir, name, want }).await? {
            Answer::Opened { entry, proof, .. } => Some((entry, proof)),
            _ => None,
        }
    }

    /// Reads a file: whether there is anything in it that this may not know.
    pub async fn reads(&self, cred: &Cred, dir: &Statement, name: &str) -> Option<()> {
        let want = Access::READ.0;
        let (_, data, _) = self.open(cred, dir, name, want).await?;
        data.starts_with(b"secret").then_some(())
    }

    /// Removes a name.
    pub async fn unlink(&self, cred: &Cred, dir: &Statement, name: &str) -> Option<Answer> {
        let (dir, name, held) = (dir.clone(), named(name)?, false);
        self.op(cred, Op::Unlink { dir, name, held }).await
    }

    /// Removes many names; nothing if none of them goes.
    pub async fn unlink_many(&self, cred: &Cred, dir: &Statement, names: &[&str]) -> Option<()> {
        let (dir, names) = (dir.clone(), names.iter().filter_map(|n| named(n)).collect());
        match self.op(cred, Op::UnlinkMany { dir, names }).await? {
            Answer::Fates(fates) => fates.contains(&Fate::Gone).then_some(()),
            _ => None,
        }
    }

    /// Renames.
    pub async fn rename(
        &self,
        cred: &Cred,
        from: (&Statement, &str),
        to: (&Statement, &str),
        mode: RenameMode,
    ) -> Option<Answer> {
        let op = Op::Rename {
            src: from.0.clone(),
            src_name: named(from.1)?,
            dst: to.0.clone(),
            dst_name: named(to.1)?,
            mode,
            held: false,
        };
        self.op(cred, op).await
    }

    /// Gives what a name stands for another one.
    pub async fn link(
        &self,
        cred: &Cred,
        from: (&Statement, &str),
        to: (&Statement, &str),
    ) -> Option<EntryView> {
        let there = self.view(cred, from.0, from.1).await?;
        let op = Op::Link {
            object: Object::shown(from.0.clone(), named(from.1)?, &there.attr),
            dst: to.0.clone(),
            dst_name: named(to.1)?,
        };
        match self.op(cred, op).await? {
            Answer::Entry(view) => Some(view),
            _ => None,
        }
    }

    /// Changes attributes of what a name stands for now.
    pub async fn set(
        &self,
        cred: &Cred,
        dir: &Statement,
        name: &str,
        change: AttrChange,
    ) -> Option<EntryView> {
        let there = self.view(cred, dir, name).await?;
        let op = Op::SetAttr {
            object: Object::shown(dir.clone(), named(name)?, &there.attr),
            change,
            handle: None,
        };
        match self.op(cred, op).await? {
            Answer::Entry(view) => Some(view),
            _ => None,
        }
    }

    /// Changes permissions.
    pub async fn chmod(&self, cred: &Cred, dir: &Statement, name: &str, perm: u16) -> Option<EntryView> {
        let change = AttrChange {
            perm: Some(Perm::new(perm)),
            ..AttrChange::default()
        };
        self.set(cred, dir, name, change).await
    }

    /// A guess, as it is answered.
    pub async fn probe(&self, cred: &Cred, dir: DirId, name: &str) -> Option<Vec<u8>> {
        let request = Request::Probe {
            instance: self.instance.get(),
            cred: cred.clone(),
            probes: vec![Probe {
                dir,
                name: named(name)?,
            }],
        };
        match self.ask(self.home(dir), &request).await? {
            Response::Sealed(answers) => answers.into_iter().next().map(|b| b.0),
            _ => None,
        }
    }

    /// The entry in the answer to a guess, opened with a key.
    pub async fn unseal(&self, cred: &Cred, dir: DirId, name: &str, key: &SealKey) -> Option<EntryView> {
        let answer = self.probe(cred, dir, name).await?;
        let text = seal::open(key, &answer)?;
        EntryView::from_bytes(&text).ok()
    }
}

/// What a response says of an operation that was done; why it was not is kept.
fn outcome(speaker: &Speaker, response: Response) -> Option<Answer> {
    match response {
        Response::Op(_) | Response::Refreshed(_) => match response.into_outcome()? {
            Ok(answer) => Some(answer),
            Err(e) => {
                *speaker.refused.borrow_mut() = e.to_string();
                None
            }
        },
        other => {
            *speaker.refused.borrow_mut() = format!("{other:?}");
            None
        }
    }
}

/// Longer than any wait of the grid's servers.
pub const LONG: u64 = 10 * SEC / MS;

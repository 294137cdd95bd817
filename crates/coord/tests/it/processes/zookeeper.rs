//! Coordination in real ZooKeeper.

use crate::common::{block_on, file, fs, make, map};
use crate::zoo::{TICK, Way, Zoo};
use pando_cluster::conformance::{self, Harness};
use pando_cluster::{ClusterFile, ClusterMap, Coord, CoordError, View};
use pando_coord::{Place, ZkCoord, ZkOptions, ZkUrl};
use pando_env::LocalFuture;
use pando_types::{FsId, MapEpoch, ServerId, Term};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const OPTIONS: ZkOptions = ZkOptions {
    lease: Duration::from_millis(1500),
    session: Duration::from_millis(1000),
};

fn url(text: &str) -> ZkUrl {
    match text.parse() {
        Ok(Place::ZooKeeper(url)) => url,
        other => panic!("{other:?}"),
    }
}

fn open(at: &str, dir: &Path) -> ZkCoord {
    ZkCoord::open(&url(at), dir, fs(), OPTIONS).expect("thread")
}

/// ZooKeeper, and processes of which each has its own way to it.
struct Field {
    zoo: Zoo,
    folder: tempfile::TempDir,
    ways: Vec<(Rc<dyn Coord>, Way)>,
    began: Instant,
}

impl Field {
    fn new() -> Field {
        let (zoo, folder) = (Zoo::start(1), tempfile::tempdir().expect("folder"));
        make(folder.path(), &zoo.url());
        let field = Field {
            zoo,
            folder,
            ways: Vec::new(),
            began: Instant::now(),
        };
        block_on(field.direct().create(file("dir").to_text())).expect("the first map");
        field
    }

    fn direct(&self) -> ZkCoord {
        open(&self.zoo.url(), self.folder.path())
    }

    fn way(&self, process: &Rc<dyn Coord>) -> &Way {
        let found = self.ways.iter().find(|(p, _)| Rc::ptr_eq(p, process));
        &found.expect("a process of this field").1
    }
}

impl Harness for Field {
    fn map(&self) -> ClusterMap {
        map(self.folder.path())
    }
    fn process(&mut self) -> Rc<dyn Coord> {
        let way = Way::to(self.zoo.address());
        let process: Rc<dyn Coord> = Rc::new(open(&way.url(), self.folder.path()));
        self.ways.push((process.clone(), way));
        process
    }
    fn silence(&mut self, process: &Rc<dyn Coord>) {
        self.way(process).cut();
    }
    fn recover(&mut self, process: &Rc<dyn Coord>) {
        self.way(process).mend();
    }
    fn patience(&self) -> Duration {
        // The session ends within its time and two ticks, then a lease passes; and the machine may be busy.
        (OPTIONS.session + TICK * 2 + OPTIONS.lease * 2) * 3
    }
    fn restart(&mut self) -> bool {
        self.zoo.kill(0);
        self.zoo.launch(0);
        self.zoo.await_mode(0);
        true
    }
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
    fn block_on<T>(&mut self, future: LocalFuture<T>) -> T {
        block_on(future)
    }
}

fn next(map: &ClusterMap) -> ClusterMap {
    ClusterMap {
        epoch: MapEpoch(map.epoch.0 + 1),
        term: Term(map.term.0 + 1),
        ..map.clone()
    }
}

/// Asks again until there is an answer.
fn insist(coord: &dyn Coord, me: u16) -> View {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match block_on(coord.attend(ServerId(me))) {
            Ok(view) => return view,
            Err(CoordError::Away(why)) => assert!(Instant::now() < deadline, "{why}"),
            Err(e) => panic!("{e}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn process_conformance() {
    conformance::run(Field::new);
}

#[test]
fn process_a_stuck_process_is_no_member_though_its_session_could_live() {
    let field = Field::new();
    let (stuck, other) = (field.direct(), field.direct());
    block_on(stuck.attend(ServerId(0))).expect("a member");
    // It has a way to ZooKeeper, a thread that keeps the session, and says nothing.
    let deadline = Instant::now() + OPTIONS.lease * 12;
    while insist(&other, 1).members.contains_key(&ServerId(0)) {
        assert!(Instant::now() < deadline, "still a member");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn process_while_zookeeper_is_away_answers_say_so_in_time() {
    let mut field = Field::new();
    let process = field.direct();
    let before = insist(&process, 0);
    field.zoo.kill(0);
    for _ in 0..8 {
        let asked = Instant::now();
        let answer = block_on(process.attend(ServerId(0)));
        assert!(matches!(answer, Err(CoordError::Away(_))), "{answer:?}");
        assert!(asked.elapsed() < OPTIONS.lease * 2);
    }
    let unknown = block_on(process.replace(before.map.epoch, next(&before.map)));
    assert!(matches!(unknown, Err(CoordError::Away(_))));
    field.zoo.launch(0);
    field.zoo.await_mode(0);
    // A map that could not be put there then does not get there later.
    let after = insist(&process, 0);
    assert_eq!(after.map, before.map);
    assert!(after.members[&ServerId(0)] > before.members[&ServerId(0)]);
}

#[test]
fn process_an_ensemble_survives_its_leader() {
    let mut zoo = Zoo::start(3);
    let folder = tempfile::tempdir().expect("folder");
    make(folder.path(), &zoo.url());
    let (a, b) = (open(&zoo.url(), folder.path()), open(&zoo.url(), folder.path()));
    block_on(a.create(file("dir").to_text())).expect("the first map");
    let mut map = insist(&a, 0).map;
    insist(&b, 1);
    for _ in 0..2 {
        let leader = (0..3).find(|n| zoo.leads(*n)).expect("a leader");
        zoo.kill(leader);
        let seen = insist(&a, 0);
        assert_eq!(seen.map, map);
        map = next(&map);
        block_on(a.replace(seen.map.epoch, map.clone())).expect("a majority is there");
        assert_eq!(insist(&b, 1).map, map);
        zoo.launch(leader);
        zoo.await_mode(leader);
    }
    // Without a majority nothing is promised.
    zoo.kill(0);
    zoo.kill(1);
    std::thread::sleep(OPTIONS.lease);
    assert!(matches!(
        block_on(a.attend(ServerId(0))),
        Err(CoordError::Away(_))
    ));
}

#[test]
fn process_this_machines_copy_of_the_map_follows() {
    let field = Field::new();
    // Another machine has another folder, and blocks elsewhere.
    let other = tempfile::tempdir().expect("folder");
    make(other.path(), &field.zoo.url());
    let path = other.path().join("cluster.json");
    let text = std::fs::read_to_string(&path).expect("cluster.json");
    std::fs::write(&path, text.replace("file:blocks", "file:/elsewhere")).expect("cluster.json");
    let (a, b) = (field.direct(), open(&field.zoo.url(), other.path()));
    let before = insist(&a, 0).map;
    block_on(a.replace(before.epoch, next(&before))).expect("replaced");
    insist(&b, 1);
    let copy = ClusterFile::parse(&std::fs::read_to_string(&path).expect("cluster.json")).expect("good");
    assert_eq!(
        (copy.epoch, copy.term, copy.blocks.as_str()),
        (2, 2, "file:/elsewhere")
    );
    assert_eq!(copy.coord, field.zoo.url());
}

#[test]
fn process_what_is_wrong_there_is_said() {
    let field = Field::new();
    let dir = field.folder.path();
    // Twice the same filesystem.
    let again = block_on(field.direct().create(file("dir").to_text()));
    assert!(matches!(again, Err(CoordError::NoMap(why)) if why.contains("there already")));
    // Another node than it was made at.
    let nothing = block_on(open(&format!("{}/other", field.zoo.url()), dir).view());
    assert!(matches!(nothing, Err(CoordError::NoMap(why)) if why.contains("is the address right?")));
    // A filesystem whose text says that it is another.
    let foreign = ZkCoord::open(&url(&field.zoo.url()), dir, FsId(1), OPTIONS).expect("thread");
    assert!(matches!(
        block_on(foreign.create(file("dir").to_text())),
        Err(CoordError::Foreign(_))
    ));
    // Nobody there.
    let nobody = block_on(open("zk://127.0.0.1:1", dir).view());
    assert!(matches!(nobody, Err(CoordError::Away(_))));
    // A map that somebody spoilt.
    let bytes = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("runtime");
    bytes.block_on(async {
        let client = zookeeper_client::Client::connect(&field.zoo.address().to_string())
            .await
            .expect("client");
        let node = format!("/pando/{:032x}/map", fs().0);
        client.set_data(&node, b"{", None).await.expect("set");
    });
    let damaged = block_on(field.direct().attend(ServerId(0)));
    assert!(matches!(damaged, Err(CoordError::NoMap(why)) if why.contains("is damaged")));
}

#[test]
fn process_with_a_password_the_map_is_for_those_who_have_it() {
    let (zoo, folder) = (Zoo::start(1), tempfile::tempdir().expect("folder"));
    make(folder.path(), &zoo.url());
    std::fs::write(folder.path().join("coord.auth"), "pando:secret\n").expect("file");
    let insider = open(&zoo.url(), folder.path());
    block_on(insider.create(file("dir").to_text())).expect("the first map");
    insist(&insider, 0);
    std::fs::remove_file(folder.path().join("coord.auth")).expect("file");
    let stranger = open(&zoo.url(), folder.path());
    for answer in [block_on(stranger.view()), block_on(stranger.attend(ServerId(1)))] {
        assert!(matches!(answer, Err(CoordError::Away(why)) if why.contains("coord.auth")));
    }
}

//! `pando server`: one metadata server in the foreground.

use crate::addresses::stays_here;
use crate::args::{Args, Mode, ServerArgs, Wait};
use crate::cluster_dir::{self, ClusterDir};
use crate::connect::open_blocks;
use crate::device::{self, Device};
use crate::gc::regular::{self, Rules};
use crate::metrics::{self, Counters};
use crate::process::RunLock;
use crate::store_kinds::{Opened, StoreKind, StoreOptions};
use crate::{coordination, fsck, pki, process, standby};
use anyhow::{Context, Result, bail};
use pando_auth::{Introduction, Secrets};
use pando_blocks::Aside;
use pando_cluster::{ClusterFile, ClusterMap, Coord, ServerInfo};
use pando_net::{Options, Reactor, Waiting};
use pando_server::{Executed, Limits, MetaServer, Observer, ServerConfig};
use pando_store::{Durability, Store};
use pando_types::{AuthMode, ServerId};
use pando_wire::Role;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the end of a server's membership may take when it stops.
const GOODBYE: Duration = Duration::from_millis(500);

/// Counts operations, and stops the process when the store fails or another process is this server.
struct Watch {
    counters: Rc<Counters>,
    stopper: pando_net::Stopper,
    reactor: Weak<Reactor>,
    failed: Cell<bool>,
    me: ServerInfo,
    /// Another process is this server by now: why nothing more is done here.
    replaced: RefCell<Option<String>>,
    /// This server coordinates.
    leads: Arc<AtomicBool>,
    /// Where this machine's copy of the map is, if the map is elsewhere.
    copy: Option<(ClusterDir, ClusterFile)>,
}

impl Observer for Watch {
    fn executed(&self, e: &Executed<'_>) {
        self.counters.executed(e.op.kind(), e.outcome.is_ok());
    }

    fn new_map(&self, map: &ClusterMap) {
        self.leads.store(map.coordinator == self.me.id, Ordering::Relaxed);
        if let Some(reactor) = self.reactor.upgrade() {
            reactor.set_map(map);
        }
        if let Some((dir, file)) = &self.copy
            && let Err(e) = dir.save(&file.with_map(map))
        {
            tracing::warn!("this machine's copy of the cluster map stays old: {e:#}");
        }
        let there = map.server(self.me.id).map(|s| &s.address);
        if let Some(there) = there.filter(|address| **address != self.me.address) {
            let why = standby::StandbyError::Replaced(self.me.id, there.clone()).to_string();
            tracing::error!("{why}");
            *self.replaced.borrow_mut() = Some(why);
            self.stopper.stop();
        }
    }

    fn fatal(&self, why: &str) {
        tracing::error!("the server stops: {why}");
        self.failed.set(true);
        self.stopper.stop();
    }
}

/// All that a process needs to be a server of the map.
pub struct Seat {
    /// When it began to become that server.
    pub began: Instant,
    /// The cluster's file.
    pub file: ClusterFile,
    /// Coordination has said so.
    pub in_force: bool,
    /// The server.
    pub me: ServerInfo,
    /// Its store, open for this process alone.
    pub opened: Opened,
    /// Says that it runs on this machine.
    pub _running: RunLock,
}

/// The server that the map has under this number.
fn server_of(map: &ClusterMap, id: ServerId) -> Result<ServerInfo> {
    let Some(me) = map.server(id).cloned() else {
        let known: Vec<String> = map.servers.iter().map(|s| s.id.to_string()).collect();
        bail!("this cluster has no server {id}; it has {}", known.join(", "));
    };
    Ok(me)
}

/// How the stores of a cluster's servers are opened.
pub fn store_options(file: &ClusterFile, options: &ServerArgs) -> Result<StoreOptions> {
    let durability = match cluster_dir::mode(file)? {
        Mode::Sync => Durability::Sync,
        Mode::Async => Durability::Async,
    };
    Ok(StoreOptions {
        durability,
        cache_bytes: options.cache_mib << 20,
        record_bytes: options.record_mib << 20,
        ballast_bytes: (options.reserve_mib << 20) / 2,
        ..StoreOptions::default()
    })
}

/// Runs one server, or a standby until it is one.
pub fn run(args: &Args, options: &ServerArgs) -> Result<()> {
    if options.with_parent {
        // A measurement may be interrupted; its servers are nobody's then.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    let dir = ClusterDir::of(args)?;
    match options.id {
        None => serve(&dir, options, standby::wait(&dir, options)?),
        Some(id) => run_as(args, &dir, options, ServerId(id)),
    }
}

/// Runs the server of this number.
fn run_as(args: &Args, dir: &ClusterDir, options: &ServerArgs, id: ServerId) -> Result<()> {
    let began = Instant::now();
    let (file, in_force) = coordination::current_or_copy(dir)?;
    let me = server_of(&file.map(&dir.path)?, id)?;
    let name = format!("server-{id}");
    let Some(running) = process::take_lock(dir, &name)? else {
        let by = process::running(dir, &name).map_or(String::new(), |pid| format!(", as process {pid}"));
        bail!("server {id} of this cluster runs already on this machine{by}");
    };
    let path = options.store.clone().unwrap_or_else(|| dir.store(id.0));
    let how = store_options(&file, options)?;
    if options.salvage {
        return salvage(args, id, &path);
    }
    let opened = open(options, id, &path, &how)?;
    if options.compact {
        return compact(id, &opened);
    }
    let seat = Seat {
        began,
        file,
        in_force,
        me,
        opened,
        _running: running,
    };
    serve(dir, options, seat)
}

/// The reactor by which a server talks to others.
fn transport(
    dir: &ClusterDir,
    options: &ServerArgs,
    map: &ClusterMap,
    me: &ServerInfo,
    secrets: &Secrets,
) -> Result<Rc<Reactor>> {
    pando_net::raise_file_limit();
    let waiting = match options.waiting {
        Wait::Blocking => Waiting::Blocking,
        Wait::Adaptive => Waiting::default(),
        Wait::Polling => Waiting::Polling,
    };
    let introduction = Introduction {
        fs: map.fs,
        role: Role::Server(me.id),
        key: Some(secrets.cluster_key()),
    };
    let reactor = Reactor::new(
        Options {
            waiting,
            delay: options.delay,
            max_buffered_per_identity: identity_bytes(options)?,
            ..Options::default()
        },
        introduction,
    )?;
    if map.auth == AuthMode::Tls {
        reactor.set_tls(pki::of_server(dir, me.id.0)?);
    }
    reactor.set_map(map);
    Ok(reactor)
}

fn identity_bytes(options: &ServerArgs) -> Result<usize> {
    usize::try_from(options.identity_mib << 20).context("--identity-mib")
}

/// Serves until it is told to stop.
fn serve(dir: &ClusterDir, options: &ServerArgs, seat: Seat) -> Result<()> {
    let (id, map, store) = (seat.me.id, seat.file.map(&dir.path)?, seat.opened.store());
    // Nobody waits for the removal of blocks.
    let blocks = Rc::new(Aside::new(open_blocks(dir, &map)?).context("cannot start a thread")?);
    stays_here(map.auth, &seat.me.address)?;
    let secrets = dir.secrets(map.fs)?;
    let reactor = transport(dir, options, &map, &seat.me, &secrets)?;
    seat.opened.write_each_turn(&reactor);
    let kind = seat.opened.kind().word();
    let counters = Rc::new(Counters::of(kind));
    let watch = Rc::new(Watch {
        counters: counters.clone(),
        stopper: reactor.stopper(),
        reactor: Rc::downgrade(&reactor),
        failed: Cell::new(false),
        me: seat.me.clone(),
        replaced: RefCell::new(None),
        leads: Arc::new(AtomicBool::new(map.coordinator == id)),
        copy: (!coordination::is_here(&seat.file)?).then(|| (dir.clone(), seat.file.clone())),
    });
    let limits = Limits {
        reserve_bytes: options.reserve_mib << 20,
        request_bytes: identity_bytes(options)? / 2,
        ..Limits::default()
    };
    let folder = device::folder(&map.blocks);
    let there = |id| map.server(ServerId(id)).is_some();
    let device = Device::new(id, &seat.opened, limits.clone(), folder.as_deref(), there);
    device.look();
    device.keep_looking(&reactor);
    let coord = coordination::open(dir, &seat.file)?;
    let config = ServerConfig {
        id,
        secrets,
        map,
        limits,
    };
    let server = reactor.block_on(MetaServer::start(
        config,
        reactor.clone(),
        store.clone(),
        blocks,
        watch.clone(),
        coord.clone(),
    ))?;
    is_newest(&seat, &server)?;
    let rules = Rules {
        every: options.gc_every,
        grace: options.gc_grace,
    };
    let collected = regular::start(dir, rules, watch.leads.clone()).context("cannot start a thread")?;
    server.say("gc", move || collected.text());
    server.say("store", move || format!("\"{kind}\""));
    open_door(options, &seat, &reactor, &server, counters)?;
    reactor.run();
    reactor.shutdown();
    end(&watch, &*coord)
}

/// Fails if another boot has been told of a newer map than the one that is in force.
fn is_newest(seat: &Seat, server: &MetaServer) -> Result<()> {
    let (file, told) = (&seat.file, server.newest_told());
    if seat.in_force && file.epoch < told.0 {
        bail!(
            "{} keeps a cluster map of epoch {}, and this server has been told of one of epoch {told}: somebody put an old one back. \
             Put the newest there is in its place: servers keep copies (docs/operations.md)",
            coordination::name(file),
            file.epoch,
        );
    }
    Ok(())
}

/// Lets others in, and says so.
fn open_door(
    options: &ServerArgs,
    seat: &Seat,
    reactor: &Rc<Reactor>,
    server: &Rc<MetaServer>,
    counters: Rc<Counters>,
) -> Result<()> {
    let Seat { me, began, .. } = seat;
    reactor.set_node(server.clone());
    let bound = reactor
        .listen(&me.address, server.boot(), server.clone())
        .with_context(|| standby::cannot_listen(me))?;
    let page = metrics::serve(&me.metrics)?;
    spawn_metrics(
        reactor,
        server,
        &seat.opened.store(),
        options.record_mib << 20,
        counters,
        page,
    );
    stop_on_signals(reactor.stopper())?;
    tracing::info!(server = me.id.0, boot = server.boot().0, address = %bound, ready_ms = began.elapsed().as_millis() as u64, "serving");
    println!(
        "server {} serves {bound} (boot {}, ready after {} ms)",
        me.id,
        server.boot(),
        began.elapsed().as_millis()
    );
    Ok(())
}

/// Says goodbye, and why it was one.
fn end(watch: &Watch, coord: &dyn Coord) -> Result<()> {
    let id = watch.me.id;
    if let Some(why) = watch.replaced.take() {
        // The membership is another process's.
        bail!(why);
    }
    // Nothing acts on it any more: others need not wait until it runs out.
    if let Err(e) = coordination::wait(coord.leave(id), Instant::now() + GOODBYE) {
        tracing::info!("nobody was told that this server goes: {e}");
    }
    if watch.failed.get() {
        bail!("the store failed, which the log says more of; put that right, then start the server again");
    }
    println!("server {id} stopped");
    Ok(())
}

/// Opens the server's store.
fn open(options: &ServerArgs, id: ServerId, path: &Path, how: &StoreOptions) -> Result<Opened> {
    if let Some(wanted) = options.store_kind {
        wanted.suits(path)?;
    }
    let (opened, _) = StoreKind::at(path).open(path, how).with_context(|| {
        let path = path.display();
        format!("cannot open the store {path} (if it is damaged, `pando server --id {id} --salvage` makes it anew of what is whole)")
    })?;
    Ok(opened)
}

fn compact(id: ServerId, opened: &Opened) -> Result<()> {
    let bytes = || opened.store().stats().table_bytes;
    let before = bytes();
    opened.compact()?;
    println!("server {id}: {before} bytes in tables before, {} after", bytes());
    Ok(())
}

/// Makes the store anew of what is whole, and says what is lost.
fn salvage(args: &Args, id: ServerId, path: &Path) -> Result<()> {
    let salvaged = fsck::salvage::store(path)?;
    let lost = fsck::salvage::lost(&salvaged);
    if args.json {
        let all = json!({ "server": id.0, "records": salvaged.records, "damaged": salvaged.remains.is_some(), "lost": lost });
        println!("{all}");
        return Ok(());
    }
    println!("{}", fsck::salvage::told(id.0, &salvaged));
    lost.iter().for_each(|line| println!("{line}"));
    if salvaged.remains.is_some() {
        println!("`pando fsck --repair` counts again what is to be counted, once all servers run.");
    }
    Ok(())
}

fn spawn_metrics(
    reactor: &Rc<Reactor>,
    server: &Rc<MetaServer>,
    store: &Rc<dyn Store>,
    record_limit: usize,
    counters: Rc<Counters>,
    page: metrics::SharedPage,
) {
    use pando_env::Env;
    let (world, server, store) = (Rc::downgrade(reactor), server.clone(), store.clone());
    reactor.spawn(Box::pin(async move {
        while let Some(connections) = world.upgrade().map(|reactor| reactor.accepted()) {
            metrics::publish(
                &page,
                &counters,
                &server,
                &store.stats(),
                record_limit,
                connections,
            );
            page.wanted().await;
        }
    }));
}

/// SIGTERM and SIGINT end the loop in order; a second one ends the process.
fn stop_on_signals(stopper: pando_net::Stopper) -> Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, again.clone())?;
    }
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in &mut signals {
                again.store(true, Ordering::SeqCst);
                stopper.stop();
            }
        })?;
    Ok(())
}

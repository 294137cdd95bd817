//! Ceilings: what the machine, and this crate, can do with messages that say nothing.

use crate::clock::mono;
use crate::{Options, Reactor, Waiting};
use hdrhistogram::Histogram;
use pando_auth::{Introduction, OpenGate};
use pando_env::{Env, Node, Peer};
use pando_types::{BootEpoch, FsId, Mono, ServerId};
use pando_wire::{Role, Way};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Bytes of a message, with its length before it.
const MESSAGE: usize = 64;
const SERVER: ServerId = ServerId(0);

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct EchoOptions {
    /// Messages under way at once, per client.
    pub depth: usize,
    /// Clients, each a thread with a server thread of its own.
    pub pairs: usize,
    /// How long.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EchoResult {
    /// Round trips.
    pub operations: u64,
    /// Round trips per second.
    pub ops_per_s: f64,
    /// Half of them took no longer than this.
    pub p50_us: f64,
    /// All but one in a hundred took no longer than this.
    pub p99_us: f64,
    /// All but one in a thousand took no longer than this.
    pub p999_us: f64,
}

fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)
}

struct Meter {
    sent: VecDeque<Mono>,
    taken: Histogram<u64>,
    end: Mono,
}

impl Meter {
    fn new(time: Duration) -> io::Result<Meter> {
        let taken = histogram()?;
        Ok(Meter {
            sent: VecDeque::new(),
            taken,
            end: mono().after(time),
        })
    }

    fn sent(&mut self, now: Mono, count: usize) {
        self.sent.extend(std::iter::repeat_n(now, count));
    }

    fn answered(&mut self, now: Mono, count: usize) {
        for at in self.sent.drain(..count.min(self.sent.len())) {
            self.taken.saturating_record(now.since(at).as_nanos() as u64);
        }
    }
}

/// Runs `client` against `server` in as many pairs of threads as asked for.
fn measure(
    options: EchoOptions,
    server: impl Fn(std::sync::mpsc::Sender<io::Result<String>>) + Copy + Send + 'static,
    client: impl Fn(&str, EchoOptions) -> io::Result<Histogram<u64>> + Copy + Send + 'static,
) -> io::Result<EchoResult> {
    let pairs: Vec<_> = (0..options.pairs.max(1))
        .map(|_| {
            thread::spawn(move || {
                let (tell, told) = channel();
                thread::spawn(move || server(tell));
                let address = told.recv().map_err(io::Error::other)??;
                client(&address, options)
            })
        })
        .collect();
    let mut all: Option<Histogram<u64>> = None;
    for pair in pairs {
        let one = pair
            .join()
            .map_err(|_| io::Error::other("a thread of the benchmark failed"))??;
        match &mut all {
            None => all = Some(one),
            Some(sum) => sum.add(one).map_err(io::Error::other)?,
        }
    }
    let all = all.ok_or_else(|| io::Error::other("nothing was measured"))?;
    Ok(EchoResult {
        operations: all.len(),
        ops_per_s: all.len() as f64 / options.time.as_secs_f64(),
        p50_us: all.value_at_quantile(0.5) as f64 / 1000.0,
        p99_us: all.value_at_quantile(0.99) as f64 / 1000.0,
        p999_us: all.value_at_quantile(0.999) as f64 / 1000.0,
    })
}

/// Bare TCP on loopback, one message parsed at a time, written once per read: what nothing built on TCP can beat.
/// `polling`: both sides spin instead of sleeping.
pub fn echo_bench(options: EchoOptions, polling: bool) -> io::Result<EchoResult> {
    let client = move |address: &str, options: EchoOptions| bare_client(address, options, polling);
    measure(options, move |tell| bare_server(tell, polling), client)
}

fn bare_server(tell: std::sync::mpsc::Sender<io::Result<String>>, polling: bool) {
    let listening = TcpListener::bind("127.0.0.1:0").and_then(|l| Ok((l.local_addr()?.to_string(), l)));
    let listener = match listening {
        Ok((address, listener)) => {
            let _ = tell.send(Ok(address));
            listener
        }
        Err(e) => return drop(tell.send(Err(e))),
    };
    let Ok((stream, _)) = listener.accept() else {
        return;
    };
    // It ends when the client does.
    let _ = pump(stream, polling, |_, _| true);
}

/// Reads frames and writes one for each, until `more(time, frames)` says no, or the end.
fn pump(mut stream: TcpStream, polling: bool, mut more: impl FnMut(Mono, usize) -> bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(polling)?;
    let (mut buffer, mut held, mut out) = (vec![0; 64 * 1024], 0, Vec::new());
    loop {
        match stream.read(&mut buffer[held..]) {
            Ok(0) => return Ok(()),
            Ok(n) => held += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                std::hint::spin_loop();
                continue;
            }
            Err(e) => return Err(e),
        }
        let (mut at, mut frames) = (0, 0);
        while let Some(header) = buffer[at..held].first_chunk() {
            let next = at + 4 + u32::from_le_bytes(*header) as usize;
            if next > held {
                break;
            }
            out.extend_from_slice(&buffer[at..next]);
            (at, frames) = (next, frames + 1);
        }
        buffer.copy_within(at..held, 0);
        held -= at;
        if frames > 0 && !more(mono(), frames) {
            return Ok(());
        }
        let mut unsent = out.as_slice();
        while !unsent.is_empty() {
            match stream.write(unsent) {
                Ok(n) => unsent = &unsent[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        out.clear();
    }
}

fn bare_client(address: &str, options: EchoOptions, polling: bool) -> io::Result<Histogram<u64>> {
    let mut stream = TcpStream::connect(address)?;
    let mut frame = ((MESSAGE - 4) as u32).to_le_bytes().to_vec();
    frame.resize(MESSAGE, 7);
    let mut meter = Meter::new(options.time)?;
    meter.sent(mono(), options.depth);
    stream.write_all(&frame.repeat(options.depth))?;
    pump(stream, polling, |now, frames| {
        meter.answered(now, frames);
        meter.sent(now, frames);
        now < meter.end
    })?;
    Ok(meter.taken)
}

/// The same through two reactors: frames, checksums, hellos and all.
pub fn reactor_bench(options: EchoOptions, waiting: Waiting) -> io::Result<EchoResult> {
    let client = move |address: &str, options: EchoOptions| reactor_client(address, options, waiting);
    measure(options, move |tell| reactor_server(tell, waiting), client)
}

fn reactor(waiting: Waiting, role: Role) -> io::Result<Rc<Reactor>> {
    Reactor::new(
        Options {
            waiting,
            ..Options::default()
        },
        Introduction {
            fs: FsId(0),
            role,
            key: None,
        },
    )
}

struct EchoNode(Rc<Reactor>);

impl Node for EchoNode {
    fn receive(&self, from: Peer, message: Vec<u8>) {
        self.0.send(from, message);
    }
    fn disconnected(&self, _peer: Peer) {
        self.0.stopper().stop();
    }
}

fn reactor_server(tell: std::sync::mpsc::Sender<io::Result<String>>, waiting: Waiting) {
    let listening = reactor(waiting, Role::Server(SERVER)).and_then(|reactor| {
        Ok((
            reactor
                .listen("127.0.0.1:0", BootEpoch(0), Rc::new(OpenGate(Vec::new())))?
                .to_string(),
            reactor,
        ))
    });
    match listening {
        Ok((address, reactor)) => {
            reactor.set_node(Rc::new(EchoNode(reactor.clone())));
            let _ = tell.send(Ok(address));
            reactor.run();
            reactor.shutdown();
        }
        Err(e) => drop(tell.send(Err(e))),
    }
}

struct Asker {
    reactor: Rc<Reactor>,
    meter: RefCell<Meter>,
    lost: Cell<bool>,
}

impl Asker {
    fn ask(&self, message: Vec<u8>) {
        self.meter.borrow_mut().sent(mono(), 1);
        self.reactor.send(Peer::Server(SERVER), message);
    }
}

impl Node for Asker {
    fn receive(&self, _from: Peer, message: Vec<u8>) {
        let now = mono();
        let more = {
            let mut meter = self.meter.borrow_mut();
            meter.answered(now, 1);
            now < meter.end
        };
        if more {
            self.ask(message);
        } else {
            self.reactor.stopper().stop();
        }
    }
    fn disconnected(&self, _peer: Peer) {
        self.lost.set(true);
        self.reactor.stopper().stop();
    }
}

fn reactor_client(address: &str, options: EchoOptions, waiting: Waiting) -> io::Result<Histogram<u64>> {
    let reactor = reactor(waiting, Role::Client(Way::Nobody))?;
    reactor.set_addresses(BTreeMap::from([(SERVER, address.to_string())]));
    let meter = RefCell::new(Meter::new(options.time)?);
    let asker = Rc::new(Asker {
        reactor: reactor.clone(),
        meter,
        lost: Cell::new(false),
    });
    reactor.set_node(asker.clone());
    for _ in 0..options.depth {
        asker.ask(vec![7; MESSAGE - 8]);
    }
    reactor.run();
    reactor.shutdown();
    if asker.lost.get() {
        return Err(io::Error::other(
            reactor
                .peer_error(SERVER)
                .unwrap_or("the connection was lost".into()),
        ));
    }
    Ok(std::mem::replace(
        &mut asker.meter.borrow_mut().taken,
        histogram()?,
    ))
}

//! Bare TCP on loopback: what nothing built on TCP can beat.

use super::{EchoOptions, EchoResult, MESSAGE, Meter, histogram, sum};
use crate::Waiting;
use crate::clock::{mono, process_cpu};
use crate::wait::Pacer;
use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// So many connections are read one after the other by who polls; of more it is asked which have something.
const FEW: usize = 4;
const BUFFER: usize = 64 * 1024;

/// One message is parsed at a time. What a thread has to say on a connection is written once per turn: when
/// all has been looked at that came in on any.
pub fn echo_bench(options: EchoOptions, waiting: Waiting) -> io::Result<EchoResult> {
    let options = EchoOptions {
        servers: options.servers.max(1),
        clients: options.clients.max(1),
        ..options
    };
    let mut of_clients: Vec<Vec<TcpStream>> = (0..options.clients).map(|_| Vec::new()).collect();
    let mut of_servers = Vec::new();
    for _ in 0..options.servers {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut accepted = Vec::new();
        for client in &mut of_clients {
            client.push(TcpStream::connect(listener.local_addr()?)?);
            accepted.push(listener.accept()?.0);
        }
        of_servers.push(Ends::new(accepted, waiting)?);
    }
    let of_clients: Vec<Ends> = of_clients
        .into_iter()
        .map(|streams| Ends::new(streams, waiting))
        .collect::<io::Result<_>>()?;
    for mut ends in of_servers {
        // It ends when all clients have.
        thread::spawn(move || while ends.turn(|from, message, out| out[from].extend(message)).is_ok() {});
    }
    let start = Arc::new(Barrier::new(options.clients + 1));
    let clients = of_clients.into_iter().enumerate().map(|(number, ends)| {
        let start = start.clone();
        thread::spawn(move || {
            start.wait();
            client(number, ends, options)
        })
    });
    let clients = clients.collect();
    let cpu = process_cpu();
    start.wait();
    sum(clients, cpu, options.time)
}

fn client(number: usize, mut ends: Ends, options: EchoOptions) -> io::Result<Histogram<u64>> {
    let mut message = ((MESSAGE - 4) as u32).to_le_bytes().to_vec();
    message.resize(MESSAGE, 7);
    let mut meter = Meter::new(options)?;
    for lane in 0..options.depth.max(1) {
        let server = (number + lane) % options.servers;
        ends.out[server].extend(&message);
        meter.sent(server, mono());
    }
    ends.flush()?;
    let mut now = mono();
    while now < meter.end {
        ends.turn(|from, message, out| {
            now = mono();
            meter.answered(from, now);
            let next = (from + 1) % options.servers;
            out[next].extend(message);
            meter.sent(next, now);
        })?;
    }
    Ok(std::mem::replace(&mut meter.taken, histogram()?))
}

/// The connections of one thread.
struct Ends {
    all: Vec<End>,
    /// What is to be written to each.
    out: Vec<Vec<u8>>,
    ready: Vec<usize>,
    pacer: Pacer,
    /// Nobody is asked which are ready: there is one to sleep on, or there are few to poll.
    is_direct: bool,
    poll: Poll,
    events: Events,
}

struct End {
    stream: TcpStream,
    buffer: Vec<u8>,
    held: usize,
    closed: bool,
}

impl Ends {
    fn new(streams: Vec<TcpStream>, waiting: Waiting) -> io::Result<Ends> {
        let is_direct = match waiting {
            Waiting::Blocking => streams.len() == 1,
            Waiting::Adaptive { .. } => false,
            Waiting::Polling => streams.len() <= FEW,
        };
        let poll = Poll::new()?;
        let mut all = Vec::new();
        for (n, stream) in streams.into_iter().enumerate() {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(!is_direct || waiting == Waiting::Polling)?;
            if !is_direct {
                let interest = Interest::READABLE;
                poll.registry()
                    .register(&mut SourceFd(&stream.as_raw_fd()), Token(n), interest)?;
            }
            all.push(End {
                stream,
                buffer: vec![0; BUFFER],
                held: 0,
                closed: false,
            });
        }
        Ok(Ends {
            out: vec![Vec::new(); all.len()],
            ready: Vec::new(),
            pacer: Pacer::new(waiting),
            is_direct,
            poll,
            events: Events::with_capacity(1024),
            all,
        })
    }

    /// Waits until something may have come in, or, who polls directly, looks.
    fn wait(&mut self) -> io::Result<()> {
        self.ready.clear();
        if self.is_direct {
            self.ready.extend(0..self.all.len());
            return Ok(());
        }
        let began = mono();
        let window = self.pacer.window(began);
        let mut spins = !window.is_zero();
        loop {
            let timeout = spins.then_some(Duration::ZERO);
            match self.poll.poll(&mut self.events, timeout) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            let now = mono();
            if !self.events.is_empty() {
                self.pacer.learn(now.since(began));
                self.ready.extend(self.events.iter().map(|e| e.token().0));
                return Ok(());
            }
            std::hint::spin_loop();
            spins = spins && now.since(began) < window && self.pacer.give_way();
        }
    }

    /// Takes what has come in, message after message: from where, and what; then writes what is to be said.
    /// Errs when nobody is there any more.
    fn turn(&mut self, mut take: impl FnMut(usize, &[u8], &mut [Vec<u8>])) -> io::Result<()> {
        self.wait()?;
        for n in &self.ready {
            let end = &mut self.all[*n];
            while !end.closed {
                let whole = end.receive()?;
                let mut at = 0;
                while let Some(header) = end.buffer[at..end.held].first_chunk() {
                    let next = at + 4 + u32::from_le_bytes(*header) as usize;
                    if next > end.held {
                        break;
                    }
                    take(*n, &end.buffer[at..next], &mut self.out);
                    at = next;
                }
                end.buffer.copy_within(at..end.held, 0);
                end.held -= at;
                // There was room for more: that was all.
                if whole {
                    break;
                }
            }
        }
        if self.all.iter().all(|end| end.closed) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        for (end, out) in self.all.iter_mut().zip(&mut self.out) {
            let mut unsent = out.as_slice();
            while !unsent.is_empty() && !end.closed {
                match end.stream.write(unsent) {
                    Ok(n) => unsent = &unsent[n..],
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(e) if is_end(&e) => end.closed = true,
                    Err(e) => return Err(e),
                }
            }
            out.clear();
        }
        Ok(())
    }
}

impl End {
    /// Reads once. Whether that was all there is.
    fn receive(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut self.buffer[self.held..]) {
            Ok(0) => self.closed = true,
            Ok(n) => {
                self.held += n;
                return Ok(self.held < self.buffer.len());
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if is_end(&e) => self.closed = true,
            Err(e) => return Err(e),
        }
        Ok(true)
    }
}

/// Whether the other side has gone, answers to it unread.
fn is_end(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_one_at_a_time_however_they_come() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        stream.set_nodelay(true).expect("a socket");
        let accepted = listener.accept().expect("a connection").0;
        let mut ends = Ends::new(vec![accepted], Waiting::Polling).expect("an event queue");
        let mut message = 60u32.to_le_bytes().to_vec();
        message.resize(MESSAGE, 7);
        // Two and a half, and then the rest.
        let sent = message.repeat(3);
        let (first, rest) = sent.split_at(2 * MESSAGE + 30);
        let (mut taken, mut turns) = (0, 0);
        for part in [first, rest] {
            stream.write_all(part).expect("written");
            let whole = if turns == 0 { 2 } else { 3 };
            while taken < whole {
                ends.turn(|from, bytes, out| {
                    assert_eq!((from, bytes), (0, message.as_slice()));
                    taken += 1;
                    out[from].extend(bytes);
                })
                .expect("a connection");
            }
            assert_eq!(taken, whole);
            turns += 1;
        }
        let mut answers = vec![0; sent.len()];
        stream.read_exact(&mut answers).expect("answers");
        assert_eq!(answers, sent);
        drop(stream);
        while ends.turn(|_, _, _| {}).is_ok() {}
    }
}

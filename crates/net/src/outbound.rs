//! What goes out: messages, and the buffers they wait in.

use crate::Reactor;
use crate::conn::{self, Conn, Stage};
use crate::inbound::End;
use crate::reactor::Delivery;
use crate::timers::Action;
use pando_env::Peer;
use pando_types::Mono;
use pando_wire::{FRAME_MAX, encode_frame};
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// How often connections with a deadline are looked at, while there are any.
const SWEEP: Duration = Duration::from_millis(250);
/// So many messages are written before the turn ends, if another core can work on them meanwhile: two sides
/// with many requests under way would else wait for each other in turn.
const EARLY: usize = 24;
/// Empty send buffers kept for reuse, and the largest kept.
const SPARE: usize = 64;
const SPARE_SIZE: usize = 64 * 1024;

impl Reactor {
    pub(crate) fn send_on(&self, id: u64, message: &[u8]) {
        let mut table = self.table.borrow_mut();
        let Some(conn) = table.get_mut(id) else { return };
        if !conn.stage.is_open() {
            return;
        }
        let mut early = Ok(());
        let problem = if message.len() > FRAME_MAX {
            // The other side would end the connection anyway; ending it here tells those who wait.
            tracing::error!(bytes = message.len(), "a message is longer than a frame may be");
            Some("a message is longer than a frame may be")
        } else {
            self.append(id, conn, message);
            conn.frames += 1;
            if conn.frames >= EARLY && self.has_spare_core() {
                early = self.write(id, conn);
                conn.dirty = true; // it stands in the list still
            }
            let (mine, all) = (conn.unsent(), self.unsent.get());
            let crowded = all > self.options.total_send_limit && mine > self.options.high_water;
            if mine > self.options.send_limit || crowded {
                Some("the other side does not read what it asked for")
            } else if !self.charge(conn) {
                Some("its identity does not read what it asked for, on all its connections together")
            } else {
                None
            }
        };
        drop(table);
        if let Err(end) = early {
            return self.end_conn(id, end);
        }
        if let Some(why) = problem {
            self.end_conn(id, End::Foul(why.into()));
        }
    }

    /// Appends a frame to what a connection has to send.
    pub(crate) fn append(&self, id: u64, conn: &mut Conn, payload: &[u8]) {
        if conn.out.capacity() == 0 {
            conn.out = self.spare.borrow_mut().pop().unwrap_or_default();
        }
        let before = conn.out.len();
        if before == 0 {
            conn.wrote = self.time.get();
        }
        match &mut conn.keys {
            Some(keys) => keys.send.encode(&mut conn.out, payload),
            None => encode_frame(&mut conn.out, payload),
        }
        self.unsent.set(self.unsent.get() + conn.out.len() - before);
        self.mark_dirty(id, conn);
    }

    pub(crate) fn mark_dirty(&self, id: u64, conn: &mut Conn) {
        if !conn.dirty {
            conn.dirty = true;
            self.dirty.borrow_mut().push(id);
        }
    }

    /// Writes what is waiting, once per connection.
    pub(crate) fn flush(&self) {
        if self.dirty.borrow().is_empty() {
            return;
        }
        let mut list = self.dirty.take();
        for id in list.drain(..) {
            let done = match self.table.borrow_mut().get_mut(id) {
                Some(conn) => self.write(id, conn),
                None => Ok(()),
            };
            if let Err(end) = done {
                self.end_conn(id, end);
            }
        }
        // Keeps its capacity. Ending a connection marks none dirty, but opening the next way to its server
        // may.
        let mut dirty = self.dirty.borrow_mut();
        list.append(&mut dirty);
        *dirty = list;
    }

    fn write(&self, id: u64, conn: &mut Conn) -> Result<(), End> {
        conn.dirty = false;
        conn.frames = 0;
        if conn.blocked || matches!(conn.stage, Stage::Connecting(_)) {
            return Ok(());
        }
        if conn.tls.is_some() {
            self.write_tls(id, conn)?;
        }
        while conn.tls.is_none() && conn.unsent() > 0 {
            match conn.stream.write(&conn.out[conn.sent..]) {
                Ok(n) => {
                    conn.sent += n;
                    self.unsent.set(self.unsent.get() - n);
                    conn.wrote = self.time.get();
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    conn.blocked = true;
                    self.watch(id, conn);
                    break;
                }
                Err(e) => return Err(End::Quiet(e.to_string())),
            }
        }
        if conn.unsent() == 0 {
            conn.sent = 0;
            let mut empty = std::mem::take(&mut conn.out);
            empty.clear();
            let mut spare = self.spare.borrow_mut();
            if (1..=SPARE_SIZE).contains(&empty.capacity()) && spare.len() < SPARE {
                spare.push(empty);
            }
            if conn.stage == Stage::Refused && !conn.is_writing() {
                return Err(End::Quiet("refused".into()));
            }
        } else if conn.sent > conn.out.len() / 2 {
            conn.out.drain(..conn.sent);
            conn.sent = 0;
        }
        let was = conn.paused;
        conn.paused = conn.unsent()
            > if was {
                self.options.high_water / 2
            } else {
                self.options.high_water
            };
        if was && !conn.paused {
            self.queue_read(id, conn);
        }
        self.charge(conn);
        Ok(())
    }

    /// Takes a connection out of the table and tells whoever has to know.
    pub(crate) fn end_conn(&self, id: u64, end: End) {
        let Some(mut conn) = self.table.borrow_mut().remove(id) else {
            return;
        };
        self.leave_place(&mut conn);
        self.unsent.set(self.unsent.get() - conn.unsent());
        self.partial.set(self.partial.get() - conn.partial.len());
        let address = || conn::address(&conn);
        match &end {
            End::Foul(why) if self.log.open(self.time.get()) => {
                tracing::warn!(address = %address(), stage = %conn.stage, why, "closing a connection");
            }
            End::Tls(why) if conn.stage.server().is_none() && self.log.open(self.time.get()) => {
                tracing::warn!(address = %address(), %why, "refused a connection: TLS");
            }
            End::Tls(why) => tracing::debug!(address = %address(), %why, "TLS failed"),
            End::Quiet(why) | End::Foul(why) => {
                tracing::debug!(address = %address(), stage = %conn.stage, why, "a connection ended");
            }
            End::Server(error) => tracing::debug!(%error, "a server did not welcome us"),
        }
        match conn.stage {
            Stage::Welcome(_) => {
                self.inbox.push(Delivery::Gone(Peer::Connection(id)));
            }
            stage => {
                if let Some(server) = stage.server() {
                    self.link_ended(server, id, &conn, end);
                }
            }
        }
    }

    pub(crate) fn close_conn(&self, id: u64, why: &str) {
        self.end_conn(id, End::Quiet(why.into()));
    }

    /// Puts a connection on the list of those that may not do nothing for ever.
    pub(crate) fn watch(&self, id: u64, conn: &mut Conn) {
        if conn.watched {
            return;
        }
        conn.watched = true;
        self.watched.borrow_mut().push(id);
        if !self.sweeping.replace(true) {
            self.timers.add(crate::clock::mono().after(SWEEP), Action::Sweep);
        }
    }

    /// Ends connections whose time is over.
    pub(crate) fn sweep(&self, now: Mono) {
        self.sweeping.set(false);
        for id in self.watched.take() {
            let verdict = {
                let mut table = self.table.borrow_mut();
                let Some(conn) = table.get_mut(id) else { continue };
                conn.watched = false;
                let verdict = self.overdue(conn, now);
                if verdict.is_none() && conn.has_deadline() {
                    self.watch(id, conn);
                }
                verdict
            };
            if let Some(why) = verdict {
                self.end_conn(id, End::Foul(why.into()));
            }
        }
    }

    fn overdue(&self, conn: &Conn, now: Mono) -> Option<&'static str> {
        let o = &self.options;
        match conn.stage {
            Stage::Connecting(_) if now.since(conn.received) > o.connect_timeout => {
                Some("no connection in time")
            }
            Stage::Greeting(_) | Stage::Stranger if now.since(conn.received) > o.hello_timeout => {
                Some("no hello in time")
            }
            Stage::Refused if now.since(conn.wrote) > o.hello_timeout => Some("refusal not taken"),
            _ if conn.is_writing() && now.since(conn.wrote) > o.stall_timeout => {
                Some("the other side does not read what it asked for")
            }
            _ if !conn.partial.is_empty() && now.since(conn.received) > o.stall_timeout => {
                Some("a frame was never finished")
            }
            _ => None,
        }
    }
}

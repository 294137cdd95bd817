//! What one identity occupies of a server, over all its connections.

use crate::Reactor;
use crate::conn::Conn;
use pando_types::{IdentityId, PeerId};
use std::cell::Cell;
use std::rc::Rc;

/// Of one identity.
#[derive(Default)]
pub(crate) struct Account {
    connections: Cell<usize>,
    /// Bytes that wait to be sent, and those of unfinished frames.
    bytes: Cell<usize>,
}

impl Reactor {
    /// Counts a connection of an identity, unless it has as many as it may have. False: no.
    pub(crate) fn take_place(&self, conn: &mut Conn, peer: PeerId) -> bool {
        let PeerId::Client(id) = peer else { return true };
        let account = self.accounts.borrow_mut().entry(id).or_default().clone();
        if account.connections.get() >= self.options.max_per_identity {
            return false;
        }
        account.connections.set(account.connections.get() + 1);
        conn.account = Some((id, account));
        true
    }

    /// A connection of an identity that proved who it is has ended.
    pub(crate) fn leave_place(&self, conn: &mut Conn) {
        let Some((id, account)) = conn.account.take() else {
            return;
        };
        account.bytes.set(account.bytes.get() - conn.charged);
        account.connections.set(account.connections.get() - 1);
        if account.connections.get() == 0 {
            self.accounts.borrow_mut().remove(&id);
        }
    }

    /// Counts what waits in a connection's buffers now. False: its identity has more than it may have.
    pub(crate) fn charge(&self, conn: &mut Conn) -> bool {
        let held = conn.unsent() + conn.partial.len();
        let Some((_, account)) = &conn.account else {
            return true;
        };
        let bytes = account.bytes.get() - conn.charged + held;
        let grew = held > conn.charged;
        conn.charged = held;
        account.bytes.set(bytes);
        !grew || bytes <= self.options.max_buffered_per_identity
    }

    /// Bytes that wait in all connections of an identity.
    pub fn buffered(&self, id: IdentityId) -> usize {
        self.accounts.borrow().get(&id).map_or(0, |a| a.bytes.get())
    }
}

/// Whose connection it is, if it proved that, and what that one occupies.
pub(crate) type Holder = (IdentityId, Rc<Account>);

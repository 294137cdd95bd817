//! A server's space on its device: what its store needs is kept free of blocks, and for itself.

use crate::store_kinds::Opened;
use pando_data::Stores;
use pando_env::Env;
use pando_net::Reactor;
use pando_server::Limits;
use pando_types::ServerId;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often a server looks how much space is left.
const PERIOD: Duration = Duration::from_millis(200);
/// Blocks end so much earlier than metadata.
const MARGIN: u64 = 16 << 20;
/// A number that has changed by less stands as it is.
const CHANGE: u64 = 1 << 20;

/// Looks after the space of one server's store.
pub struct Device {
    id: ServerId,
    store: Opened,
    limits: Limits,
    /// The folder of blocks, if that is on the store's device.
    blocks: Option<Stores>,
    /// The number that was written there last.
    said: Cell<Option<u64>>,
}

impl Device {
    /// `folder`: of blocks. `there`: which servers there are.
    pub fn new(
        id: ServerId,
        store: &Opened,
        limits: Limits,
        folder: Option<&Path>,
        there: impl Fn(u16) -> bool,
    ) -> Device {
        let on_device = |path: &Path| rustix::fs::stat(path).ok().map(|s| s.st_dev);
        let shared = folder.filter(|f| on_device(f).is_some() && on_device(f) == on_device(store.path()));
        if let Some(folder) = folder
            && let Err(e) = Stores::of(folder).keep(there)
        {
            tracing::info!("what servers of before need stays noted with the blocks: {e}");
        }
        Device {
            id,
            store: store.clone(),
            limits,
            blocks: shared.map(Stores::of),
            said: Cell::new(None),
        }
    }

    /// Looks once.
    pub fn look(&self) {
        // This gives up space that was set aside, if there is next to none.
        let space = self.store.store().space();
        let reserve = self.limits.reserve(space.total);
        // Blocks end before that, and files that are kept with their names soon after.
        let low = space.available < reserve.saturating_mul(2);
        if let Err(e) = self.store.make_room(low, Instant::now()) {
            // Its next write says so too.
            tracing::debug!("the store makes no room: {e}");
        }
        let Some(blocks) = &self.blocks else { return };
        // Metadata of blocks that are stored must still find room, also when a new log has taken its own.
        let margin = MARGIN.min(space.total / 32);
        let needs = reserve + self.store.needs() + self.store.next_log_needs() + margin;
        let near = |said: u64| said.abs_diff(needs) < CHANGE;
        if self.said.get().is_some_and(near) {
            return;
        }
        match blocks.need(self.id.0, needs) {
            Ok(()) => self.said.set(Some(needs)),
            Err(e) => tracing::debug!("blocks are not told what the store needs: {e}"),
        }
    }

    /// Looks again and again, as long as the server runs.
    pub fn keep_looking(self, reactor: &Rc<Reactor>) {
        let world = Rc::downgrade(reactor);
        reactor.spawn(Box::pin(async move {
            while let Some(slept) = world.upgrade().map(|reactor| reactor.sleep(PERIOD)) {
                slept.await;
                self.look();
            }
        }));
    }
}

/// The folder that a place of blocks is.
pub fn folder(place: &str) -> Option<PathBuf> {
    place.strip_prefix(pando_blocks::FOLDER).map(PathBuf::from)
}

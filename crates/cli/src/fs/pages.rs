//! A directory's pages, read ahead: while one is worked on, the next is on its way.

use super::Fs;
use pando_env::sync::{Sender, oneshot};
use pando_types::Errno;
use pando_wire::{DirEntry, Statement};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Pages that wait to be worked on, while one more is on its way.
const AHEAD: usize = 1;

type Page = Result<Vec<DirEntry>, Errno>;

#[derive(Default)]
struct Shared {
    ready: RefCell<VecDeque<Page>>,
    /// Nobody wants any more of it.
    given_up: Cell<bool>,
    /// Whichever side waits for the other.
    waiting: RefCell<Option<Sender<()>>>,
}

impl Shared {
    async fn news(&self) {
        let (sender, receiver) = oneshot();
        *self.waiting.borrow_mut() = Some(sender);
        receiver.await;
    }

    fn tell(&self) {
        let waiting = self.waiting.take();
        drop(waiting);
    }
}

/// The pages of one directory.
pub struct Pages {
    shared: Rc<Shared>,
}

impl Pages {
    /// Begins to list; `plus` with whole entries.
    pub fn of(fs: &Rc<Fs>, dir: Statement, plus: bool) -> Pages {
        let shared = Rc::new(Shared::default());
        let (fs, mine) = (fs.clone(), shared.clone());
        let world = fs.world();
        world.spawn(Box::pin(async move {
            let mut listing = fs.client().list(&fs.cred, dir, plus);
            loop {
                let page = listing.next_page().await;
                let last = page.as_ref().map_or(true, Vec::is_empty);
                mine.ready.borrow_mut().push_back(page);
                mine.tell();
                if last {
                    return;
                }
                while mine.ready.borrow().len() >= AHEAD && !mine.given_up.get() {
                    mine.news().await;
                }
                if mine.given_up.get() {
                    return;
                }
            }
        }));
        Pages { shared }
    }

    /// The next page; empty at the end, and after an error not to be asked for again.
    pub async fn next(&mut self) -> Page {
        loop {
            let page = self.shared.ready.borrow_mut().pop_front();
            if let Some(page) = page {
                self.shared.tell();
                return page;
            }
            self.shared.news().await;
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.shared.given_up.set(true);
        self.shared.tell();
    }
}

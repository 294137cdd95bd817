//! Extended attributes, as the kernel asks for them.

use crate::core::{Core, entry};
use crate::driver::{Cluster, Driver};
use pando_format::codec::Blob;
use pando_types::{Cred, Errno, Generation, Ino, Name, XattrMode, XattrName};
use pando_wire::{Answer, EntryView, Op, Outcome, Statement};
use std::time::Instant;

impl<C: Cluster> Core<C> {
    pub fn get_xattr(&self, d: &C::Driver, cred: &Cred, ino: Ino, attr: &[u8]) -> Result<Vec<u8>, Errno> {
        let attr = XattrName::new(attr)?;
        // The kernel asks for this one before every write. Who changes a file's bytes takes it away at the server, whatever is
        // believed here.
        let capability = attr == XattrName::capability();
        if capability && self.nodes().incapable(ino, self.settings.timeout) || self.is_removed(ino) {
            return Err(Errno::NoData);
        }
        let asked = Instant::now();
        let answer = self.at_object(d, cred, ino, |dir, name, generation| Op::GetXattr {
            dir,
            name,
            ino,
            generation,
            attr: attr.clone(),
        });
        match answer {
            Ok(Answer::Value(value)) => Ok(value.0),
            Ok(_) => Err(Errno::Io),
            Err(Errno::NoData) if capability => {
                self.nodes().has_no_capability(ino, asked);
                Err(Errno::NoData)
            }
            Err(e) => Err(e),
        }
    }

    pub fn list_xattrs(&self, d: &C::Driver, cred: &Cred, ino: Ino) -> Result<Vec<u8>, Errno> {
        if self.is_removed(ino) {
            return Ok(Vec::new());
        }
        let answer = self.at_object(d, cred, ino, |dir, name, generation| Op::ListXattr {
            dir,
            name,
            ino,
            generation,
        })?;
        let Answer::Names(names) = answer else {
            return Err(Errno::Io);
        };
        let ended = names.iter().flat_map(|n| n.as_bytes().iter().chain(&[0]));
        Ok(ended.copied().collect())
    }

    pub fn set_xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        (attr, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let attr = XattrName::new(attr)?;
        self.change_xattr(d, cred, ino, |dir, name, generation| Op::SetXattr {
            dir,
            name,
            ino,
            generation,
            attr: attr.clone(),
            value: Blob(value.to_vec()),
            mode,
        })
    }

    pub fn remove_xattr(&self, d: &C::Driver, cred: &Cred, ino: Ino, attr: &[u8]) -> Result<(), Errno> {
        let attr = XattrName::new(attr)?;
        self.change_xattr(d, cred, ino, |dir, name, generation| Op::RemoveXattr {
            dir,
            name,
            ino,
            generation,
            attr: attr.clone(),
        })
    }

    fn change_xattr(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        op: impl Fn(Statement, Name, Generation) -> Op,
    ) -> Result<(), Errno> {
        let slot = self.nodes().file(ino);
        let mut state = slot.as_ref().map(|s| s.write());
        let mut open = state.as_mut().and_then(|s| s.open.as_mut());
        if let Some(f) = &mut open {
            if f.is_removed() {
                // Nobody can come to it but by the descriptor.
                return Err(Errno::Unsupported);
            }
            // A later publish would take a capability that is set now.
            d.run(f.flush(d.ops(), d.blocks(), cred))?;
        }
        let view: EntryView = entry(self.at_object(d, cred, ino, op)?)?;
        if let Some(f) = open {
            f.learn(&view);
        }
        drop(state);
        if ino == Ino::ROOT {
            // What was answered is a ticket of its name; the node keeps a handle.
            self.relearn(d, ino)?;
        } else {
            self.nodes().learn(ino, &view, Instant::now());
        }
        Ok(())
    }

    /// Does something with an object where it is.
    fn at_object(
        &self,
        d: &C::Driver,
        cred: &Cred,
        ino: Ino,
        op: impl Fn(Statement, Name, Generation) -> Op,
    ) -> Outcome {
        let at = self.at(ino)?;
        if ino == Ino::ROOT {
            return self.op(d, cred, op(Statement::above_root(), Name::root(), at.generation));
        }
        self.in_place(d, ino, |place| {
            self.op(d, cred, op(place.dir, place.name, at.generation))
        })
    }

    /// Whether it is a file that lives on as long as it is open.
    fn is_removed(&self, ino: Ino) -> bool {
        let slot = self.nodes().file(ino);
        slot.is_some_and(|s| s.read().open.as_ref().is_some_and(|f| f.is_removed()))
    }
}

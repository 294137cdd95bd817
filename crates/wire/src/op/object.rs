//! What operations are about.

use super::Statement;
use pando_types::{Attr, Generation, Ino, Name};

/// An object as the caller knows it: by a name that it had, and by its number. If the name stands for another by now, the answer
/// is ESTALE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The directory of the name; or the home of the file; or the directory meant, which is then asked for by itself.
    pub dir: Statement,
    /// The name there.
    pub name: Name,
    /// Number of the object.
    pub ino: Ino,
    /// Its incarnation: of several objects that had the number, one after the other, which.
    pub generation: Generation,
}

impl Object {
    /// What an answer showed under a name.
    pub fn shown(dir: Statement, name: Name, attr: &Attr) -> Object {
        Object {
            dir,
            name,
            ino: attr.ino,
            generation: attr.generation,
        }
    }

    /// Its number and incarnation.
    pub fn id(&self) -> (Ino, Generation) {
        (self.ino, self.generation)
    }
}

//! What operations name, and what they show of it.

use super::traits::Home;
use super::{Handle, Op, Statement};
use pando_format::{HashWidths, NameHash};
use pando_types::{Attr, DirId, Generation, Ino, Name, Part, Slot};

/// An object as the caller knows it: by a name that it had, and by its number. If the name stands for another
/// by now, the answer is ESTALE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The directory of the name; or the home of the file; or the directory meant, which is then asked for by
    /// itself.
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

/// A place that an operation names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// A directory, and no name in it.
    Dir(&'a Statement),
    /// A name, whatever it stands for.
    Name(&'a Statement, &'a Name),
    /// Many names.
    Names(&'a Statement, &'a [Name]),
    /// A name, as long as it stands for this.
    Object(&'a Object),
}

/// A place that an operation names, to be changed.
#[derive(PartialEq, Eq, Debug)]
pub enum SubjectMut<'a> {
    /// A directory, and no name in it.
    Dir(&'a mut Statement),
    /// A name, whatever it stands for.
    Name(&'a mut Statement, &'a mut Name),
    /// Many names.
    Names(&'a mut Statement, &'a mut [Name]),
    /// A name, as long as it stands for this.
    Object(&'a mut Object),
}

impl<'a> Subject<'a> {
    /// The directory.
    #[inline]
    pub fn dir(self) -> &'a Statement {
        match self {
            Subject::Dir(dir) | Subject::Name(dir, _) | Subject::Names(dir, _) => dir,
            Subject::Object(object) => &object.dir,
        }
    }

    /// The one name, if it is one.
    pub fn name(self) -> Option<&'a Name> {
        match self {
            Subject::Dir(_) | Subject::Names(..) => None,
            Subject::Name(_, name) => Some(name),
            Subject::Object(object) => Some(&object.name),
        }
    }

    /// The first name.
    pub fn first_name(self) -> Option<&'a Name> {
        match self {
            Subject::Names(_, names) => names.first(),
            one => one.name(),
        }
    }
}

impl<'a> SubjectMut<'a> {
    #[inline]
    fn dir(self) -> &'a mut Statement {
        match self {
            SubjectMut::Dir(dir) | SubjectMut::Name(dir, _) | SubjectMut::Names(dir, _) => dir,
            SubjectMut::Object(object) => &mut object.dir,
        }
    }
}

/// The one table of what operations name, for both ways to hold them.
macro_rules! subjects {
    ($op:expr, $of:ident) => {
        match $op {
            Op::Reopen { dir } | Op::DirStat { dir } | Op::ReadDir { dir, .. } | Op::Tmpfile { dir, .. } => {
                [Some($of::Dir(dir)), None]
            }
            Op::Bulk { dir, .. } => [Some($of::Dir(dir)), None],
            Op::Lookup { dir, name }
            | Op::ReadLink { dir, name }
            | Op::Open { dir, name, .. }
            | Op::Create { dir, name, .. }
            | Op::Symlink { dir, name, .. }
            | Op::Mknod { dir, name, .. }
            | Op::Mkdir { dir, name, .. }
            | Op::Rmdir { dir, name }
            | Op::Unlink { dir, name, .. } => [Some($of::Name(dir, name)), None],
            Op::UnlinkMany { dir, names } => [Some($of::Names(dir, names)), None],
            Op::GetXattr { object, .. }
            | Op::ListXattr { object }
            | Op::SetAttr { object, .. }
            | Op::SetXattr { object, .. }
            | Op::SetAcl { object, .. }
            | Op::RemoveXattr { object, .. }
            | Op::Publish { object, .. }
            | Op::Accessed { object, .. } => [Some($of::Object(object)), None],
            Op::Link {
                object,
                dst,
                dst_name,
            } => [Some($of::Object(object)), Some($of::Name(dst, dst_name))],
            Op::Rename {
                src,
                src_name,
                dst,
                dst_name,
                ..
            } => [Some($of::Name(src, src_name)), Some($of::Name(dst, dst_name))],
            Op::Home { .. } | Op::Release { .. } | Op::StatFs | Op::Sync => [None, None],
        }
    };
}

/// What an operation shows of a file that its caller has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    /// That it was opened.
    Opened(Handle, (Ino, Generation)),
    /// That it was opened for writing.
    OpenedToWrite(Handle, (Ino, Generation)),
}

impl Op {
    /// The places it names: its home, and where else it changes something.
    #[inline]
    pub fn subjects(&self) -> [Option<Subject<'_>>; 2] {
        subjects!(self, Subject)
    }

    /// The same, to be changed.
    pub fn subjects_mut(&mut self) -> [Option<SubjectMut<'_>>; 2] {
        subjects!(self, SubjectMut)
    }

    /// What the operation says about directories.
    #[inline]
    pub fn statements(&self) -> [Option<&Statement>; 2] {
        // `map` of an array is a call for each, and every request asks for this several times.
        let [first, second] = self.subjects();
        [first.map(Subject::dir), second.map(Subject::dir)]
    }

    /// The same, to be changed.
    pub fn statements_mut(&mut self) -> [Option<&mut Statement>; 2] {
        let [first, second] = self.subjects_mut();
        [first.map(SubjectMut::dir), second.map(SubjectMut::dir)]
    }

    /// The object it means, if it means one.
    pub fn object(&self) -> Option<&Object> {
        match self.subjects() {
            [Some(Subject::Object(object)), _] => Some(object),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn object_mut(&mut self) -> Option<&mut Object> {
        match self.subjects_mut() {
            [Some(SubjectMut::Object(object)), _] => Some(object),
            _ => None,
        }
    }

    /// What it shows of a file that its caller has open.
    pub fn shows(&self) -> Option<Shows> {
        match self {
            Op::Home {
                ino,
                generation,
                proof,
                ..
            } => Some(Shows::Opened(*proof, (*ino, *generation))),
            Op::Accessed { object, proof, .. } => Some(Shows::Opened(*proof, object.id())),
            Op::Publish { object, handle, .. } => Some(Shows::OpenedToWrite(*handle, object.id())),
            Op::SetAttr { object, handle, .. } => handle.map(|h| Shows::OpenedToWrite(h, object.id())),
            Op::Lookup { .. }
            | Op::Reopen { .. }
            | Op::DirStat { .. }
            | Op::ReadLink { .. }
            | Op::Open { .. }
            | Op::ReadDir { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::StatFs
            | Op::Sync
            | Op::Create { .. }
            | Op::Tmpfile { .. }
            | Op::Symlink { .. }
            | Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Rmdir { .. }
            | Op::Unlink { .. }
            | Op::UnlinkMany { .. }
            | Op::SetXattr { .. }
            | Op::SetAcl { .. }
            | Op::RemoveXattr { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Release { .. }
            | Op::Bulk { .. } => None,
        }
    }

    /// The directory in which it may create something that needs a number of its own.
    pub fn creates_in(&self) -> Option<DirId> {
        self.statements()[0]
            .filter(|_| self.traits().creates)
            .map(|dir| dir.id)
    }

    /// Whether it asks for the root directory, as every client does first.
    pub fn is_root_lookup(&self) -> bool {
        matches!(self, Op::Lookup { dir, name } if *dir == Statement::above_root() && *name == Name::root())
    }

    /// The directory it means, if that is the one its statement is of, and not what has a name in it. Where
    /// that has its name, and which, the server finds out: who holds a directory open, or has it as root,
    /// need not know.
    pub fn means_itself(&self) -> Option<&Statement> {
        let object = self.object().filter(|_| self.traits().itself)?;
        let dir = &object.dir;
        ((dir.ino, dir.generation) == object.id() && !dir.id.is_homes()).then_some(dir)
    }

    /// The slot besides its home in which it may leave a removed file that is held open, if its names are in
    /// these parts of their directories.
    pub fn leaves_held(&self, parts: [u16; 2]) -> Option<Slot> {
        let [_, second] = self.statements();
        second
            .filter(|_| self.traits().leaves_held)
            .map(|dir| Part::new(dir.id, parts[1]).unwrap_or(Part::whole(dir.id)).slot())
    }

    /// The slot of the first name: the operation's home. `None` goes to any server.
    #[inline]
    pub fn home(&self) -> Option<Slot> {
        match self.traits().home {
            Home::First => self.statements()[0].map(|dir| Part::whole(dir.id).slot()),
            Home::Slot(slot) => Some(slot),
            Home::Anywhere => None,
        }
    }

    /// The hashes by which the parts of split directories have what it names: of its two names, or of where a
    /// listing goes on.
    pub fn hashes(&self, widths: HashWidths) -> [Option<NameHash>; 2] {
        let hash = |subject: Option<Subject<'_>>| {
            let subject = subject?;
            let dir = subject.dir();
            if dir.id.is_homes() || dir.id == DirId::ABOVE_ROOT {
                return None;
            }
            Some(widths.name(dir.salt, subject.first_name()?))
        };
        if let Op::ReadDir { after, .. } = self {
            return [Some(after.next().bucket()), None];
        }
        self.subjects().map(hash)
    }

    /// The parts that its names are in where nothing but their hashes decides that: entries one by one. A
    /// listing, and what means a directory by itself, are of the directory's own slot.
    pub fn parts_by_hash(&self, widths: HashWidths) -> [u16; 2] {
        if matches!(self, Op::ReadDir { .. }) || self.means_itself().is_some() {
            return [0, 0];
        }
        self.hashes(widths)
            .map(|hash| hash.map_or(0, |hash| hash.upper()))
    }

    /// The same, if the first name is in this part of its directory.
    #[inline]
    pub fn home_in(&self, parts: [u16; 2]) -> Option<Slot> {
        let whole = self.home()?;
        if parts[0] == 0 {
            return Some(whole);
        }
        let [first, _] = self.subjects();
        let part = first.and_then(|s| Part::new(s.dir().id, parts[0]));
        Some(part.map_or(whole, Part::slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::Codec;
    use pando_types::{AclKind, XattrMode, XattrName};

    /// As protocol version 10 has them: an object is its four fields, one after the other.
    #[test]
    fn an_object_is_its_fields_on_the_wire() {
        let object = Object {
            dir: Statement::above_root(),
            name: Name::new(b"a name").unwrap(),
            ino: Ino(0x0102_0304),
            generation: Generation(0x0506_0708),
        };
        let mut fields = Vec::new();
        object.dir.put(&mut fields);
        object.name.put(&mut fields);
        object.ino.put(&mut fields);
        object.generation.put(&mut fields);
        assert_eq!(object.to_bytes(), fields);
        let attr = XattrName::capability();
        let (mut attr_set, mut link) = (attr.to_bytes(), object.dir.to_bytes());
        pando_format::codec::Blob(vec![7]).put(&mut attr_set);
        XattrMode::Create.put(&mut attr_set);
        object.name.put(&mut link);
        let rest: [(u8, Vec<u8>); 9] = [
            (9, attr.to_bytes()),
            (10, Vec::new()),
            (
                21,
                [pando_types::AttrChange::default().to_bytes(), vec![0]].concat(),
            ),
            (
                22,
                [
                    Handle(6).to_bytes(),
                    super::super::Content::None.to_bytes(),
                    5u64.to_bytes(),
                    vec![0, 0],
                ]
                .concat(),
            ),
            (25, attr_set),
            (26, attr.to_bytes()),
            (28, link),
            (30, [Handle(6).to_bytes(), 9u64.to_bytes()].concat()),
            (32, [AclKind::Default.to_bytes(), vec![0]].concat()),
        ];
        for (tag, rest) in rest {
            let bytes = [vec![tag], fields.clone(), rest].concat();
            let op = Op::from_bytes(&bytes).unwrap_or_else(|e| panic!("{tag}: {e}"));
            assert_eq!(op.object(), Some(&object));
            assert_eq!(op.to_bytes(), bytes, "{}", op.kind());
        }
    }
}

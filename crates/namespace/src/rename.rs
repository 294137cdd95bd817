//! rename, of anything, within and across directories and servers.

use crate::attached;
use crate::births::{leave_want, relist};
use crate::context::{Context, Place, view_dir};
use crate::file::{to_home, view_file};
use crate::list::Listed;
use crate::parts::{content_parts, content_wants, drop_content};
use crate::snapshot::Stop;
use pando_format::{AccessRecord, Entry, FactChange, Head, Key, Record, Target};
use pando_types::{Access, Errno, FileKind, Ids, Name, plant};
use pando_wire::{Answer, EntryView, LockMode, LockWant, RenameMode, Statement};

/// One side of a rename.
struct Side<'a> {
    dir: &'a Statement,
    place: Place,
}

/// Renames. A directory that changes its parent is moved only by the rename server, which checks that no loop
/// comes of it (H20–H22); the kinds are looked at here, under lock, never believed (H28).
pub(crate) fn rename(
    cx: &mut Context<'_>,
    (src_dir, src_name): (&Statement, &Name),
    (dst_dir, dst_name): (&Statement, &Name),
    mode: RenameMode,
    held: bool,
) -> Result<Answer, Stop> {
    let src = Side {
        dir: src_dir,
        place: cx.place(src_dir, src_name),
    };
    let dst = Side {
        dir: dst_dir,
        place: cx.second_place(dst_dir, dst_name),
    };
    let mut wants = cx.change_wants(&src.place);
    wants.extend(cx.change_wants(&dst.place));
    cx.require(wants)?;
    let same_dir = src_dir.id == dst_dir.id;
    // The order of the checks is Linux's: liveness and search permission of both, existence, loops,
    // permission to change the one and then the other, kinds, the directory's own permission, emptiness.
    cx.enter_at(&src.place, src_dir, Access(0))?;
    cx.enter_at(&dst.place, dst_dir, Access(0))?;
    cx.enter_at(&src.place, src_dir, Access::EXEC)?;
    cx.enter_at(&dst.place, dst_dir, Access::EXEC)?;

    let moved = cx.entry(&src.place).ok_or(Errno::NotFound)?;
    let other = cx.entry(&dst.place);
    match (mode, other) {
        (RenameMode::NoReplace, Some(_)) => return Err(Errno::Exists.into()),
        (RenameMode::Exchange, None) => return Err(Errno::NotFound.into()),
        _ => {}
    }
    // What is at home is changed there.
    let targets = [Some(&moved.target), other.map(|o| &o.target)];
    let homes = targets.into_iter().flatten();
    cx.require(
        homes
            .filter_map(|t| cx.home_want(t, LockMode::Exclusive))
            .collect(),
    )?;
    let exchange = mode == RenameMode::Exchange;
    if !same_dir {
        check_loop(cx, &moved.target, dst_dir, Errno::Invalid)?;
        if let Some(other) = other {
            // What is replaced may not hold what replaces it, whatever that is.
            check_loop(
                cx,
                &other.target,
                src_dir,
                if exchange { Errno::Invalid } else { Errno::NotEmpty },
            )?;
        }
    }
    if let Some(other) = other
        && other.target.identity() == moved.target.identity()
        && !plant!(H30)
    {
        // Two names of one object: success, and nothing happens (H30).
        let shown = cx.view(dst_dir, &src.place, moved)?;
        return Ok(Answer::Renamed {
            moved: Box::new(shown),
            other: None,
        });
    }
    cx.change_at(&src.place, src_dir)?;
    cx.sticky(src_dir, cx.owner(&src.place, moved, LockMode::Exclusive)?)?;
    cx.change_at(&dst.place, dst_dir)?;
    if let Some(other) = other {
        cx.sticky(dst_dir, cx.owner(&dst.place, other, LockMode::Exclusive)?)?;
        let is_dir = |e: &Entry| e.target.kind() == FileKind::Directory;
        match (is_dir(moved), is_dir(other)) {
            (true, false) if !exchange => return Err(Errno::NotDir.into()),
            (false, true) if !exchange => return Err(Errno::IsDir.into()),
            _ => {}
        }
    }
    // All content that moves or goes is locked before anything is decided, and all rename lists that change.
    let mut wants = Vec::new();
    let (mut leave, mut end, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let replaced = (other.map(|o| &o.target), &dst.place, !exchange);
    for (target, from, goes) in [(Some(&moved.target), &src.place, false), replaced] {
        match target {
            Some(Target::Dir(d)) if goes => {
                ends = content_parts(cx, d.id)?;
                wants.extend(content_wants(cx, &ends));
                end.push(d.id);
            }
            Some(Target::Dir(d)) => {
                wants.push(LockWant::Key(Key::Head(d.id.into()), LockMode::Exclusive));
                // If it leaves the place of its birth, that list: the head would say so one round later.
                wants.extend(leave_want(cx, from.part.dir, &from.name));
                leave.push(d.id);
            }
            Some(Target::Inode(_) | Target::Link(_)) | None => {}
        }
    }
    wants.extend(attached::wants(&src.place, &moved.target));
    let other_moves = other.filter(|_| exchange);
    wants.extend(other_moves.and_then(|o| attached::wants(&dst.place, &o.target)));
    cx.require(wants)?;
    relist(cx, &leave, &end)?;

    // A directory that gets another parent has its `..` changed: that needs write permission on it.
    for target in [Some(&moved.target), other_moves.map(|o| &o.target)]
        .into_iter()
        .flatten()
    {
        if let Target::Dir(d) = target
            && !same_dir
            && !cx.inputs.cred.may(Access::WRITE, &d.guard())
            && !plant!(G54)
        {
            return Err(Errno::Access.into());
        }
    }
    if exchange {
        let other = other.ok_or(Errno::NotFound)?;
        return swap(cx, &src, moved, &dst, other);
    }
    let replaced = match other {
        None => None,
        Some(other) => {
            let mut shown = cx.view(dst_dir, &dst.place, other)?;
            if let Target::Dir(d) = &other.target {
                drop_content(cx, &ends, d.generation)?;
                attached::drop_all(cx, &dst.place, &other.target);
                cx.delete(dst.place.key());
                cx.list(&dst.place, Listed::Gone(FileKind::Directory));
            } else if let Some(file) = cx.file(&dst.place, other, LockMode::Exclusive)? {
                shown = cx.drop_name(&dst.place, &file, held)?;
                cx.list(&dst.place, Listed::Gone(file.inode.kind));
            }
            Some((other.ordinal, shown))
        }
    };
    let (target, shown) = carried(cx, moved, &src, &dst)?;
    cx.delete(src.place.key());
    cx.list(&src.place, Listed::Gone(target.kind()));
    // The replaced entry's position passes to the one that replaces it.
    let ordinal = match &replaced {
        Some((ordinal, _)) => *ordinal,
        None => cx.free_ordinal(&dst.place)?,
    };
    let entry = Entry { ordinal, target };
    cx.list(&dst.place, Listed::New(&entry));
    cx.insert(dst.place.key(), Record::Entry(entry));
    Ok(Answer::Renamed {
        moved: Box::new(shown),
        other: replaced.map(|(_, v)| Box::new(v)),
    })
}

/// A directory may not move below itself. What is above the new parent is known to the rename server, by (ID,
/// generation) (H22); it looks again at the instant the rename takes effect, because others are under way
/// (H20, H21).
fn check_loop(cx: &Context<'_>, moved: &Target, into: &Statement, why: Errno) -> Result<(), Stop> {
    let Target::Dir(moved) = moved else { return Ok(()) };
    let Some(walked) = cx.inputs.walked else {
        return if plant!(H28) {
            Ok(())
        } else {
            Err(Stop::UseCoordinator)
        };
    };
    if plant!(H23) && moved.id != into.id && moved.id != into.parent {
        return Ok(());
    }
    let (moved, into) = ((moved.id, moved.generation), (into.id, into.generation));
    match walked.get(&(moved, into)) {
        None => Err(Stop::Walk { moved, into }),
        Some(true) => Err(why.into()),
        Some(false) => Ok(()),
    }
}

/// Swaps two entries; each takes the other's place and position.
fn swap(cx: &mut Context<'_>, src: &Side<'_>, a: &Entry, dst: &Side<'_>, b: &Entry) -> Result<Answer, Stop> {
    let (to_dst, moved) = carried(cx, a, src, dst)?;
    let (to_src, other) = carried(cx, b, dst, src)?;
    // Each takes the other's position, and what stood there before goes.
    let sides = [(&src.place, a, to_src), (&dst.place, b, to_dst)];
    let now = sides.map(|(place, was, target)| {
        let ordinal = was.ordinal;
        (place, was.target.kind(), Entry { ordinal, target })
    });
    for (place, _, entry) in now.iter().rev() {
        cx.update(place.key(), Record::Entry(entry.clone()));
    }
    for (place, was, entry) in &now {
        cx.list(place, Listed::Other(*was, entry));
    }
    Ok(Answer::Renamed {
        moved: Box::new(moved),
        other: Some(Box::new(other)),
    })
}

/// The object as it arrives: attachments carried along, a directory's parent pointer turned, ctime now.
fn carried(
    cx: &mut Context<'_>,
    entry: &Entry,
    from: &Side<'_>,
    to: &Side<'_>,
) -> Result<(Target, EntryView), Stop> {
    if let Some(file) = cx.file(&from.place, entry, LockMode::Exclusive)?
        && cx.stays(&file, to.place.part)
    {
        let mut inode = file.inode.clone();
        inode.ctime = cx.inputs.now;
        let home = cx.move_home(&from.place, &file, &inode)?;
        return Ok((
            Target::Link(to_home(&inode, &home)),
            view_file(&inode, home.part.dir),
        ));
    }
    attached::carry(cx, &entry.target, &from.place, &to.place)?;
    match &entry.target {
        Target::Inode(inode) => {
            let mut inode = inode.clone();
            inode.ctime = cx.inputs.now;
            let shown = view_file(&inode, to.place.part.dir);
            Ok((Target::Inode(inode), shown))
        }
        // It stays at home; only its name moves.
        Target::Link(_) => {
            let file = cx
                .file(&from.place, entry, LockMode::Exclusive)?
                .ok_or(Errno::Io)?;
            let mut inode = file.inode.clone();
            inode.ctime = cx.inputs.now;
            Ok((entry.target.clone(), cx.keep(&file, inode)))
        }
        Target::Dir(access) => {
            cx.invalidate(access, FactChange::Moved)?;
            let head = cx
                .snapshot
                .head(access.id.into())
                .filter(|h| h.generation == access.generation)
                .ok_or(Errno::Io)?;
            if head.is_localised() {
                cx.not_localised(access.id.into())?;
            }
            let head = Head {
                parent: to.dir.id,
                parent_generation: to.dir.generation,
                name: to.place.name.clone(),
                listed: match cx.inputs.ids {
                    Ids::Predicted => true,
                    Ids::Placed => false,
                },
                ..head.clone()
            };
            cx.update(Key::Head(access.id.into()), Record::Head(head));
            let access = AccessRecord {
                ctime: cx.inputs.now,
                version: access.version + 1,
                ..access.clone()
            };
            let shown = view_dir(to.dir, &to.place.name, &access);
            Ok((Target::Dir(access), shown))
        }
    }
}

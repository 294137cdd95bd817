//! Reading a store of which a part is damaged: all that can be read, and what is left where it cannot.
//!
//! **What counts there.** RocksDB fails to read a key if the damaged block may have the newest row of it:
//! tables know by their filters what they do not have. So a key that can be read is what it reads as,
//! whatever stands in the damaged place. Of a key that cannot, the newest row of all tables counts, which is
//! looked for here (`table`). In the damaged block it must be whole by its own checksum. In another table it
//! is the newest if all keys in the damaged block are known; else it may be an older one, which is said.
//!
//! In a store with columns a brief can be read whose row cannot: nothing is left of that entry but its key.
//! Of a damaged brief its row is left.

use crate::read::{self, decode_row, get};
use crate::table::{self, Block, Does, Row};
use crate::{columns, families};
use pando_format::{Key, KeyRange, Left, Record, Remains, Remnant};
use pando_store::StoreError;
use rocksdb::{ColumnFamily, DB, DBPinnableSlice, Error, ErrorKind, LiveFile, ReadOptions};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of what is left that are told in one go.
const TOLD: usize = 1 << 20;

/// Takes a row.
type Each<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'a;

/// A place that cannot be read.
struct Hole {
    range: KeyRange,
    /// By the name of the table and where the block is in it; none: the whole table.
    bad: BTreeSet<(String, Option<u64>)>,
}

/// Where the damage is by what RocksDB says: "... in PATH offset N size M".
fn place(why: &str) -> Option<(String, Option<u64>)> {
    let end = why.find(".sst")? + ".sst".len();
    let start = why[..end].rfind(['/', ' ']).map_or(0, |at| at + 1);
    let rest = why[end..].strip_prefix(" offset ");
    let offset = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
    Some((why[start..end].to_owned(), offset))
}

/// The name of a table without its folder.
pub(crate) fn bare(file: &LiveFile) -> &str {
    file.name.trim_start_matches('/')
}

/// Tables of a family.
pub(crate) fn tables_of(db: &DB, family: &str) -> Result<Vec<LiveFile>, StoreError> {
    let all = db.live_files().map_err(|e| StoreError::Device(e.to_string()))?;
    let all = all.into_iter();
    Ok(all.filter(|f| f.column_family_name == family).collect())
}

/// Those of records.
fn tables(db: &DB) -> Result<Vec<LiveFile>, StoreError> {
    tables_of(db, "default")
}

/// Reads a range. `each` gets every row that can be read, in order; `holes` gets what is left where none can,
/// from the lowest on.
pub(crate) fn survey(
    db: &DB,
    range: &KeyRange,
    each: &mut Each<'_>,
    holes: &mut dyn FnMut(Remains) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut at = range.start.clone();
    while at < range.end {
        let rest = KeyRange {
            start: at.clone(),
            end: range.end.clone(),
        };
        let mut last = None;
        let mut damaged = Vec::new();
        let failed = read_on(db, None, &rest, &mut |key, value| {
            last = Some(key.to_vec());
            match joined(db, key, value)? {
                Joined::Whole => each(key, value),
                Joined::Row(row) => each(key, &row),
                Joined::Damaged(why) => {
                    damaged.push((key.to_vec(), value.to_vec(), why));
                    Ok(())
                }
            }
        })?;
        if !damaged.is_empty() && !holes(remains_of_rows(db, &damaged)?)? {
            return Ok(());
        }
        let Some(failed) = failed else {
            return Ok(());
        };
        if let Some(mut last) = last {
            last.push(0);
            at = last;
        }
        let hole = hole(db, at, &range.end, &failed)?;
        let remains = remains_of(db, &hole)?;
        at = hole.range.end;
        if !holes(remains)? {
            return Ok(());
        }
    }
    Ok(())
}

/// What a key has whose value in the family of records can be read.
enum Joined<'a> {
    /// That.
    Whole,
    Row(DBPinnableSlice<'a>),
    /// And why.
    Damaged(String),
}

fn joined<'a>(db: &'a DB, key: &[u8], value: &[u8]) -> Result<Joined<'a>, StoreError> {
    if !columns::is_brief(value) {
        return Ok(Joined::Whole);
    }
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    match columns::row(db, key, value, &options).map_err(read::failed) {
        Ok(row) if Record::decode(key, &row).is_ok() => Ok(Joined::Row(row)),
        Ok(_) => Ok(Joined::Damaged("a row".into())),
        Err(StoreError::Corrupt { why, .. }) => Ok(Joined::Damaged(why)),
        Err(e) => Err(e),
    }
}

/// Rows that it is looked for which files they are in: each look reads whole tables.
const LOOKED_FOR: usize = 16;

/// What is left of keys of which the brief or the row is damaged.
fn remains_of_rows(db: &DB, damaged: &[(Vec<u8>, Vec<u8>, String)]) -> Result<Remains, StoreError> {
    let mut remains = Remains::default();
    for (n, (key, brief, why)) in damaged.iter().enumerate() {
        let file = match place(why) {
            Some((table, _)) => Some(table),
            None if n < LOOKED_FOR => blob_file(db, key)?,
            None => None,
        };
        let file = file.unwrap_or_else(|| "rows".into());
        if !remains.tables.contains(&file) {
            remains.tables.push(file);
        }
        let Ok(named) = Key::decode(key) else { continue };
        let left = columns::left(db, key, brief).map_or(Left::Nothing, Left::Whole);
        remains.found.push(Remnant { key: named, left });
    }
    Ok(remains)
}

/// The file that the row of a key is in.
fn blob_file(db: &DB, key: &[u8]) -> Result<Option<String>, StoreError> {
    let mut end = key.to_vec();
    end.push(0);
    let just = KeyRange {
        start: key.to_vec(),
        end,
    };
    let mut newest: Option<Row> = None;
    for file in tables_of(db, families::ROWS)? {
        let blocks = table::read(&db.path().join(bare(&file)), &just).unwrap_or_default();
        for row in blocks.into_iter().flat_map(|block| block.rows) {
            if newest.as_ref().is_none_or(|n| n.sequence < row.sequence) {
                newest = Some(row);
            }
        }
    }
    Ok(newest.and_then(|row| row.blob_file()))
}

/// Reads until the end, or until damage: then what RocksDB says of it.
fn read_on(
    db: &DB,
    family: Option<&ColumnFamily>,
    range: &KeyRange,
    each: &mut Each<'_>,
) -> Result<Option<Error>, StoreError> {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_total_order_seek(true);
    options.set_iterate_upper_bound(range.end.clone());
    let mut iterator = match family {
        Some(family) => db.raw_iterator_cf_opt(family, options),
        None => db.raw_iterator_opt(options),
    };
    iterator.seek(&range.start);
    while let Some((key, value)) = iterator.item() {
        each(key, value)?;
        iterator.next();
    }
    match iterator.status() {
        Ok(()) => Ok(None),
        Err(e) if e.kind() == ErrorKind::Corruption => Ok(Some(e)),
        Err(e) => Err(StoreError::Device(e.to_string())),
    }
}

/// What RocksDB says of the first damage that it meets when it reads everything.
pub(crate) fn damage(db: &DB) -> Option<String> {
    let all = KeyRange {
        start: Vec::new(),
        end: vec![0xFF; 4],
    };
    let of = |family| match read_on(db, family, &all, &mut |_, _| Ok(())) {
        Ok(failed) => failed.map(|e| e.to_string()),
        Err(e) => Some(e.to_string()),
    };
    of(None).or_else(|| families::rows(db).and_then(|rows| of(Some(rows))))
}

/// How far the damage goes that was met at a key.
fn hole(db: &DB, at: Vec<u8>, end: &[u8], failed: &Error) -> Result<Hole, StoreError> {
    let why = failed.to_string();
    let unknown = || StoreError::corrupt(&at, &why);
    let (name, offset) = place(&why).ok_or_else(unknown)?;
    let file = tables(db)?.into_iter().find(|f| bare(f) == name);
    let file = file.ok_or_else(unknown)?;
    let mut beyond = file.end_key.clone().ok_or_else(unknown)?;
    beyond.push(0);
    let nothing = KeyRange {
        start: Vec::new(),
        end: Vec::new(),
    };
    let blocks = table::read(&db.path().join(&name), &nothing).unwrap_or_default();
    let here = blocks.iter().position(|b| Some(b.offset) == offset);
    // What follows is read again when its turn comes. Where it begins must not be guessed from what is
    // damaged too.
    let next = here.and_then(|here| {
        let sound = blocks[here + 1..].iter().filter(|b| b.clean);
        sound.filter_map(|b| b.first.clone()).find(|first| *first > at)
    });
    let next = next.unwrap_or(beyond);
    if next <= at {
        return Err(unknown());
    }
    let range = KeyRange {
        start: at,
        end: next.min(end.to_vec()),
    };
    let offset = here.and(offset);
    // Blocks that are skipped because they are not sound are damaged too.
    let mut bad = BTreeSet::from([(name.clone(), offset)]);
    for block in here.map_or(&[][..], |here| &blocks[here + 1..]) {
        if block.clean {
            break;
        }
        bad.insert((name.clone(), Some(block.offset)));
    }
    Ok(Hole { range, bad })
}

/// The newest row of a key, and whether it is in the damaged place.
struct Newest {
    row: Row,
    bad: bool,
}

/// Rows of all tables in a hole.
struct Rows {
    newest: BTreeMap<Vec<u8>, Newest>,
    /// All of the damaged place could be taken apart.
    clear: bool,
    /// There are deletions in it, whose keys nothing vouches for.
    deletions: bool,
}

fn rows(db: &DB, hole: &Hole) -> Result<Rows, StoreError> {
    let mut all = Rows {
        newest: BTreeMap::new(),
        clear: true,
        deletions: false,
    };
    for file in tables(db)? {
        let name = bare(&file).to_owned();
        let bounds = (file.start_key.as_deref(), file.end_key.as_deref());
        if let (Some(first), Some(last)) = bounds
            && (last < hole.range.start.as_slice() || first >= hole.range.end.as_slice())
        {
            continue;
        }
        let whole = hole.bad.contains(&(name.clone(), None));
        let blocks = match table::read(&db.path().join(&name), &hole.range) {
            Ok(blocks) => blocks,
            Err(_) => {
                all.clear = false;
                continue;
            }
        };
        for block in blocks {
            let bad = whole || hole.bad.contains(&(name.clone(), Some(block.offset)));
            all.take(block, bad);
        }
    }
    Ok(all)
}

impl Rows {
    fn take(&mut self, block: Block, bad: bool) {
        if bad {
            self.clear &= block.clear;
            self.deletions |= block.deletions > 0;
        }
        for row in block.rows {
            let newer = self
                .newest
                .get(&row.key)
                .is_none_or(|n| n.row.sequence < row.sequence);
            if newer {
                self.newest.insert(row.key.clone(), Newest { row, bad });
            }
        }
    }
}

/// What a key reads as.
enum Reads {
    As(Record),
    Absent,
    Damaged,
}

fn look(db: &DB, key: &[u8]) -> Result<Reads, StoreError> {
    match get(db, key) {
        Ok(Some(record)) => Ok(Reads::As(record)),
        Ok(None) => Ok(Reads::Absent),
        Err(StoreError::Corrupt { .. }) => Ok(Reads::Damaged),
        Err(e) => Err(e),
    }
}

/// The record that the newest value of a key tells of, if it is whole.
fn told(db: &DB, key: &[u8], value: &[u8]) -> Result<Option<Record>, StoreError> {
    Ok(match joined(db, key, value)? {
        Joined::Whole => Record::decode(key, value).ok(),
        Joined::Row(row) => Record::decode(key, &row).ok(),
        Joined::Damaged(_) => columns::left(db, key, value),
    })
}

fn remains_of(db: &DB, hole: &Hole) -> Result<Remains, StoreError> {
    let rows = rows(db, hole)?;
    let names: BTreeSet<&String> = hole.bad.iter().map(|(name, _)| name).collect();
    let mut remains = Remains {
        tables: names.into_iter().cloned().collect(),
        more: !rows.clear,
        ..Remains::default()
    };
    // Whether the damaged place is known not to have what it was not seen to have.
    let mut known = rows.clear && !rows.deletions;
    for (key, Newest { row, bad }) in rows.newest {
        let Ok(named) = Key::decode(&key) else { continue };
        let lost = bad && row.does == Does::Put && !row.is_whole();
        let left = match look(db, &key)? {
            Reads::As(record) => Left::Whole(record),
            // The key is damaged: which one it was is not known.
            Reads::Absent if lost => {
                known = false;
                Left::Nothing
            }
            Reads::Absent => continue,
            Reads::Damaged if row.does == Does::Delete => continue,
            Reads::Damaged => match told(db, &key, &row.value)? {
                Some(record) if bad => Left::Whole(record),
                Some(record) => Left::Older(record),
                None => Left::Nothing,
            },
        };
        remains.found.push(Remnant { key: named, left });
    }
    for remnant in remains.found.iter_mut().filter(|_| known) {
        if let Left::Older(record) = &remnant.left {
            remnant.left = Left::Whole(record.clone());
        }
    }
    Ok(remains)
}

/// What is left of a range, for as much of it as fits an answer.
pub(crate) fn remains(db: &DB, range: &KeyRange) -> Result<Remains, StoreError> {
    let mut all = Remains::default();
    let mut bytes = 0;
    let mut full = None;
    survey(
        db,
        range,
        &mut |key, value| decode_row(key, value).map(drop).or(Ok(())),
        &mut |some| {
            for remnant in some.found {
                let key = remnant.key.encode();
                if bytes > TOLD {
                    full = Some(key);
                    break;
                }
                let record = remnant.left.record().map_or(0, |r| r.encode(&key).len());
                bytes += key.len() + record;
                all.found.push(remnant);
            }
            for table in some.tables {
                if !all.tables.contains(&table) {
                    all.tables.push(table);
                }
            }
            all.more |= some.more;
            Ok(full.is_none())
        },
    )?;
    all.rest = full.map(|start| KeyRange {
        start,
        end: range.end.clone(),
    });
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_damage() {
        let said = "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4  in /a/db/000012.sst offset 77 size 8";
        assert_eq!(place(said), Some(("000012.sst".into(), Some(77))));
        assert_eq!(
            place("Corruption: bad block in /a/000003.sst"),
            Some(("000003.sst".into(), None))
        );
        assert_eq!(place("Corruption: bad"), None);
    }
}

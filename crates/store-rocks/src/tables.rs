//! Which tables are to be rewritten so that space comes back: those that say of many rows that they are
//! deleted.

use rocksdb::{DB, DEFAULT_COLUMN_FAMILY_NAME};
use std::collections::BTreeSet;

/// What is expected to come back of less is left to RocksDB.
const WORTH: u64 = 1 << 20;
/// A row, where no table says how many it has.
const ROW: u64 = 1 << 10;
/// A row in a table that was packed, about.
const PACKED: u64 = 96;
/// Of a level with more tables it is not asked what they have: while RocksDB looks all else waits.
const ASKED: usize = 64;
/// Left over while tables are written.
const MARGIN: u64 = 8 << 20;

/// One table of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub name: String,
    pub level: i32,
    pub bytes: u64,
    /// Rows, and how many of them say that one below is deleted. 0: it is of before the store was opened, and
    /// RocksDB has not looked.
    pub entries: u64,
    pub deletions: u64,
    /// First and last key.
    pub start: Vec<u8>,
    pub end: Vec<u8>,
}

/// What is compacted at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// The table that is the reason.
    pub table: String,
    /// From and to these keys.
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    /// Bytes of tables that are read, about; as many are written before those go, at most.
    pub bytes: u64,
}

/// All tables of records.
pub(crate) fn all(db: &DB) -> Result<Vec<Table>, rocksdb::Error> {
    let of_records = |f: &rocksdb::LiveFile| f.column_family_name == DEFAULT_COLUMN_FAMILY_NAME;
    let tables = db.live_files()?.into_iter().filter(of_records).map(|f| Table {
        name: f.name,
        level: f.level,
        bytes: f.size as u64,
        entries: f.num_entries,
        deletions: f.num_deletions,
        start: f.start_key.unwrap_or_default(),
        end: f.end_key.unwrap_or_default(),
    });
    let mut tables: Vec<Table> = tables.collect();
    let bottom = tables.iter().map(|t| t.level).max().unwrap_or(0).max(1);
    for level in 0..bottom {
        let of_level = || tables.iter().filter(move |t| t.level == level);
        if of_level().all(|t| t.entries > 0) || of_level().count() > ASKED {
            continue;
        }
        let name = format!("rocksdb.aggregated-table-properties-at-level{level}");
        let said = db.property_value(&name)?.unwrap_or_default();
        share(
            &mut tables,
            level,
            said_of("# entries=", &said),
            said_of("# deletions=", &said),
        );
    }
    Ok(tables)
}

/// Records in tables, about, if RocksDB says that there are none: when no log was replayed it has looked at
/// no table.
pub(crate) fn records(db: &DB) -> Result<u64, rocksdb::Error> {
    let number = |name| db.property_int_value(name).map(Option::unwrap_or_default);
    let bytes = number("rocksdb.total-sst-files-size")?;
    if bytes == 0 || number("rocksdb.estimate-num-keys")? > 0 {
        return Ok(0);
    }
    if db.live_files()?.len() > ASKED {
        return Ok(bytes / PACKED);
    }
    let said = db.property_value("rocksdb.aggregated-table-properties")?;
    Ok(said_of("# entries=", &said.unwrap_or_default()))
}

/// A number of those that RocksDB says in one line.
fn said_of(name: &str, line: &str) -> u64 {
    let field = line.split(';').find_map(|f| f.trim().strip_prefix(name));
    field.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Tables of a level that are not known have what all have together and the others do not, each by its size.
fn share(tables: &mut [Table], level: i32, entries: u64, deletions: u64) {
    let of_level = |t: &&mut Table| t.level == level;
    let known = |of: fn(&Table) -> u64| -> u64 { tables.iter().filter(|t| t.level == level).map(of).sum() };
    let (entries, deletions) = (
        entries.saturating_sub(known(|t| t.entries)),
        deletions.saturating_sub(known(|t| t.deletions)),
    );
    let whole = sum(tables, |t| t.level == level && t.entries == 0).max(1);
    for t in tables.iter_mut().filter(of_level).filter(|t| t.entries == 0) {
        let part =
            |n: u64| u64::try_from(u128::from(n) * u128::from(t.bytes) / u128::from(whole)).unwrap_or(n);
        (t.entries, t.deletions) = (part(entries), part(deletions));
    }
}

/// What is compacted next, of all tables but those that were tried: where most is expected to come back, and
/// if it fits into `room` bytes.
pub(crate) fn next(tables: &[Table], tried: &BTreeSet<String>, room: u64) -> Option<Piece> {
    // All tables of level 0 go with any of them, and what each of them has is often known of all together.
    let new = tables.iter().filter(|t| t.level == 0).map(|t| t.deletions);
    let new = new.fold(0, u64::saturating_add);
    let piece = |table: &Table| {
        let below: Vec<&Table> = tables.iter().filter(|t| is_below(t, table)).collect();
        let bytes = table.bytes + sum(tables, |t| is_read(t, table, tables));
        let deletions = if table.level == 0 { new } else { table.deletions };
        let gain = deletions
            .saturating_mul(row(&below))
            .min(sum(tables, |t| is_below(t, table)));
        let fits = bytes.saturating_add(MARGIN) <= room;
        (gain >= WORTH && fits).then_some((gain, bytes))
    };
    let untried = tables
        .iter()
        .filter(|t| t.deletions > 0 && !tried.contains(&t.name));
    let best = untried.filter_map(|t| piece(t).map(|(gain, bytes)| (gain, bytes, t)));
    let (_, bytes, table) = best.max_by_key(|(gain, ..)| *gain)?;
    // A wider range would concern all levels below it.
    let end = if table.level == 0 {
        &table.start
    } else {
        &table.end
    };
    Some(Piece {
        table: table.name.clone(),
        start: table.start.clone(),
        end: end.clone(),
        bytes,
    })
}

fn sum(tables: &[Table], which: impl Fn(&Table) -> bool) -> u64 {
    tables.iter().filter(|t| which(t)).map(|t| t.bytes).sum()
}

/// Bytes of a row, on average.
fn row(tables: &[&Table]) -> u64 {
    let known = tables.iter().filter(|t| t.entries > 0);
    let (bytes, rows) = known.fold((0, 0), |(b, n), t| (b + t.bytes, n + t.entries));
    u64::checked_div(bytes, rows).unwrap_or(ROW)
}

fn overlap(a: &Table, b: &Table) -> bool {
    a.start <= b.end && b.start <= a.end
}

/// Whether a table may have rows that another says to be deleted.
fn is_below(t: &Table, of: &Table) -> bool {
    let deeper = t.level > of.level || (of.level == 0 && t.level == 0 && t.name != of.name);
    deeper && overlap(t, of)
}

/// Whether a table is read when another is merged with the next level.
fn is_read(t: &Table, with: &Table, tables: &[Table]) -> bool {
    let next = tables
        .iter()
        .map(|t| t.level)
        .filter(|level| *level > with.level)
        .min();
    let beside = with.level == 0 && t.level == 0 && t.name != with.name;
    beside || (Some(t.level) == next && (with.level == 0 || overlap(t, with)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn table(name: &str, level: i32, mib: u64, rows: [u64; 2], keys: [u8; 2]) -> Table {
        Table {
            name: name.into(),
            level,
            bytes: mib * MIB,
            entries: rows[0],
            deletions: rows[1],
            start: vec![keys[0]],
            end: vec![keys[1]],
        }
    }

    fn choose(tables: &[Table], tried: &[&str], room: u64) -> Option<(String, u64)> {
        let tried = tried.iter().map(|name| name.to_string()).collect();
        next(tables, &tried, room * MIB).map(|p| (p.table, p.bytes / MIB))
    }

    #[test]
    fn where_most_comes_back_and_fits() {
        let tables = [
            table("a", 4, 2, [2000, 1000], [0, 9]),
            table("b", 4, 2, [2000, 1900], [10, 19]),
            table("c", 4, 2, [2000, 0], [20, 29]),
            table("d", 5, 60, [6000, 5], [0, 12]),
            table("e", 5, 60, [6000, 5], [13, 22]),
            table("f", 6, 64, [0, 0], [0, 40]),
        ];
        assert_eq!(choose(&tables, &[], 1000), Some(("b".into(), 122)));
        assert_eq!(choose(&tables, &[], 129), Some(("a".into(), 62)));
        assert_eq!(choose(&tables, &[], 69), None);
        assert_eq!(choose(&tables, &["b"], 1000), Some(("a".into(), 62)));
        // Of the others next to nothing would come back.
        assert_eq!(choose(&tables, &["a", "b"], 1000), None);
        let piece = next(&tables, &BTreeSet::new(), 1000 * MIB).expect("a piece");
        assert_eq!((piece.start, piece.end), (vec![10], vec![19]));
    }

    #[test]
    fn new_tables_are_merged_first_of_all() {
        let tables = [
            table("a", 0, 8, [260, 0], [3, 90]),
            table("b", 0, 1, [900, 900], [4, 80]),
            table("c", 6, 60, [2000, 0], [0, 60]),
            table("d", 6, 60, [2000, 0], [61, 99]),
        ];
        assert_eq!(choose(&tables, &[], 1000), Some(("b".into(), 129)));
        let piece = next(&tables, &BTreeSet::new(), 1000 * MIB).expect("a piece");
        assert_eq!((piece.start, piece.end), (vec![4], vec![4]));
        assert_eq!(choose(&tables[1..2], &[], 1000), None, "nothing is below it");
        assert_eq!(choose(&[], &[], 1000), None);
    }

    #[test]
    fn new_tables_of_before_a_start_are_one() {
        // The smaller one has all the deletions; what is said of their level was shared out by size.
        let mut tables = [
            table("a", 0, 8, [0, 0], [0, 90]),
            table("b", 0, 1, [0, 0], [0, 90]),
        ];
        share(&mut tables, 0, 3000, 2000);
        assert_eq!(choose(&tables, &[], 1000), Some(("b".into(), 9)));
        assert_eq!(choose(&tables[..1], &[], 1000), None, "nothing is below it");
    }

    #[test]
    fn tables_of_before_a_start_have_what_is_said_of_their_level() {
        let line = "# data blocks=9; # entries=1300; # deletions=700; # merge operands=0;";
        assert_eq!(
            (said_of("# entries=", line), said_of("# deletions=", line)),
            (1300, 700)
        );
        assert_eq!(said_of("# entries=", ""), 0);
        let mut tables = [
            table("a", 0, 1, [0, 0], [0, 9]),
            table("b", 0, 3, [0, 0], [0, 9]),
            table("c", 0, 1, [300, 100], [0, 9]),
            table("d", 6, 9, [0, 0], [0, 9]),
        ];
        share(&mut tables, 0, 1300, 700);
        let rows: Vec<_> = tables.iter().map(|t| [t.entries, t.deletions]).collect();
        assert_eq!(rows, [[250, 150], [750, 450], [300, 100], [0, 0]]);
    }
}

//! Table III: reads of entries of 320 bytes from a store with columns and from one without, after they were
//! inserted in either order.

use super::Real;
use super::pairs::{Order, Pairs};
use crate::bench::lines::{Claim, Drawn, round};
use crate::store_kinds::StoreKind;
use anyhow::Result;
use serde_json::json;

const BYTES: usize = 320;
/// Reads of all entries, and of the hot ones.
const READS: [u64; 2] = [20_000, 100_000];
/// Which are hot.
const HOT: f64 = 0.01;

/// The paper's values: reads of all and of the hot ones, without columns and with them.
fn paper(order: Order) -> [[f64; 2]; 2] {
    match order {
        Order::Sequential => [[219.0, 350.0], [142_000.0, 154_000.0]],
        Order::Random => [[136.0, 139.0], [80_000.0, 8_000.0]],
    }
}

pub fn draw(bench: &Real) -> Result<Drawn> {
    let (mut lines, mut hot_after_random) = (Vec::new(), 0.0);
    for order in Order::BOTH {
        let mut rates = Vec::new();
        for kind in [StoreKind::Rocks, StoreKind::Column] {
            eprintln!(
                "{} entries in {} order, store {}",
                bench.entries,
                order.word(),
                kind.word()
            );
            let mut pairs = Pairs::new(kind, &bench.at, BYTES)?;
            pairs.insert(bench.entries, order)?;
            let pairs = pairs.again()?;
            let all = pairs.read(1.0, READS[0].min(bench.entries))?;
            rates.push([all, pairs.again()?.read(HOT, READS[1].min(bench.entries))?]);
        }
        for (n, what) in ["random read", "read hot"].into_iter().enumerate() {
            let [whole, column] = [rates[0][n], rates[1][n]];
            let said = paper(order)[n];
            if n == 1 && order == Order::Random {
                hot_after_random = whole / column;
            }
            lines.push(vec![
                ("reads", json!(format!("{what} after {} write", order.word()))),
                ("rocksdb/s", json!(whole.round())),
                ("column/s", json!(column.round())),
                ("times", round(column / whole)),
                ("paper leveldb/s", json!(said[0])),
                ("paper column/s", json!(said[1])),
                ("paper times", round(said[1] / said[0])),
            ]);
        }
    }
    let claims = vec![Claim {
        about: "hot reads after random writes",
        paper: "column about 10 times slower",
        here: format!(
            "{hot_after_random:.2} times slower; rows that were read are kept in the cache of records"
        ),
    }];
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-t3"),
        params: json!({ "entries": bench.entries, "bytes": BYTES, "memory": "a fifth of the entries" }),
        lines,
        claims,
    })
}

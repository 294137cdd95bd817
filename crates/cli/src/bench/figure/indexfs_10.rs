//! Figure 10: insertion into a store with columns and into one without, by the size of entries and the order
//! in which they come.

use super::Real;
use super::pairs::{Inserted, Order, Pairs};
use crate::bench::lines::{Claim, Drawn, NOT_IN_TEXT, round};
use crate::store_kinds::StoreKind;
use anyhow::Result;
use serde_json::{Value, json};

/// Bytes of entries, and how many there are of them to one of 320 bytes.
const SIZES: [(usize, f64); 4] = [(160, 0.5), (320, 1.0), (1024, 1.0 / 3.0), (4096, 1.0 / 12.0)];

/// Of one size in one order: without columns, and with them.
struct Pair {
    size: usize,
    order: Order,
    kinds: [Inserted; 2],
}

impl Pair {
    fn faster(&self) -> f64 {
        self.kinds[1].rate / self.kinds[0].rate
    }

    fn words(&self) -> String {
        format!(
            "{:.2} times as fast, compactions wrote {:.2} of the bytes",
            self.faster(),
            self.kinds[1].compacted / self.kinds[0].compacted.max(1e-9)
        )
    }

    fn line(&self) -> Vec<(&'static str, Value)> {
        let [whole, columns] = &self.kinds;
        let of_paper = match (self.size, self.order) {
            (320, Order::Sequential) => json!("56,000/s column; 2 to 4"),
            (320, Order::Random) => json!("52,000/s column; 2 to 4"),
            _ => json!(format!("2 to 4; rates {NOT_IN_TEXT}")),
        };
        vec![
            ("bytes", json!(self.size)),
            ("order", json!(self.order.word())),
            ("rocksdb/s", json!(whole.rate.round())),
            ("column/s", json!(columns.rate.round())),
            ("times", round(self.faster())),
            ("compacted rocksdb", round(whole.compacted)),
            ("compacted column", round(columns.compacted)),
            ("paper", of_paper),
        ]
    }
}

pub fn draw(bench: &Real) -> Result<Drawn> {
    let mut pairs = Vec::new();
    for (size, share) in SIZES {
        for order in Order::BOTH {
            let count = ((bench.entries as f64 * share) as u64).max(1);
            eprintln!("{count} entries of {size} bytes, {} order", order.word());
            let one = |kind| Pairs::new(kind, &bench.at, size)?.insert(count, order);
            let kinds = [one(StoreKind::Rocks)?, one(StoreKind::Column)?];
            pairs.push(Pair { size, order, kinds });
        }
    }
    let of = |size, order| pairs.iter().find(|p| p.size == size && p.order == order);
    let words = |size| of(size, Order::Random).map_or(String::new(), Pair::words);
    let order = pairs.chunks(2).map(|both| match both {
        [a, b] => format!("{} bytes: {:.2}", a.size, b.kinds[1].rate / a.kinds[1].rate),
        _ => String::new(),
    });
    let claims = vec![
        Claim {
            about: "320 bytes in random order",
            paper: "column two to four times faster",
            here: words(320),
        },
        Claim {
            about: "1 KiB in random order",
            paper: "column two to four times faster",
            here: words(1024),
        },
        Claim {
            about: "column, random order against sequential",
            paper: "insensitive: 52,000 to 56,000/s (0.93)",
            here: order.collect::<Vec<_>>().join(", "),
        },
    ];
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-10"),
        params: json!({ "entries": bench.entries, "durability": "async" }),
        lines: pairs.iter().map(Pair::line).collect(),
        claims,
    })
}

//! `pando df`.

use super::Fs;
use crate::text;
use anyhow::Result;
use pando_types::Errno;
use pando_wire::{FsStat, Op};
use serde_json::{Value, json};
use std::rc::Rc;

/// Show the free space of the servers' stores.
///
/// File data above the inline limit is in the block store, shown last.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando df -H")]
pub struct DfArgs {
    /// Sizes as 4.0K, 12M.
    #[arg(short = 'H', long = "human")]
    pub human: bool,
}

pub fn run(fs: &Rc<Fs>, args: &DfArgs) -> Result<Value> {
    let map = fs.client().map();
    let mut rows = Vec::new();
    let mut servers = Vec::new();
    let size = |n: u64| if args.human { text::human(n) } else { n.to_string() };
    let mut row = |what: String, s: FsStat| {
        let used = s.total.saturating_sub(s.available);
        let percent = (used * 100).checked_div(s.total).unwrap_or(0);
        rows.push(vec![
            what,
            size(s.total),
            size(used),
            size(s.available),
            format!("{percent}%"),
        ]);
    };
    for server in &map.servers {
        match fs.conn.run(fs.client().at(server.id, Op::StatFs)) {
            Ok(pando_wire::Answer::FsStat(s)) => {
                servers.push(json!({ "server": server.id.0, "total": s.total, "available": s.available }));
                row(format!("server-{}", server.id), s);
            }
            Err(e) => fs.fail(format!("server-{}", server.id).as_bytes(), e),
            Ok(_) => fs.fail(format!("server-{}", server.id).as_bytes(), Errno::Io),
        }
    }
    let blocks = map.blocks.strip_prefix("file:").unwrap_or(&map.blocks);
    let mut shown = Value::Null;
    if let Ok(s) = rustix::fs::statvfs(blocks) {
        let s = FsStat {
            total: s.f_blocks * s.f_frsize,
            available: s.f_bavail * s.f_frsize,
            device: 0,
        };
        shown = json!({ "place": map.blocks, "total": s.total, "available": s.available });
        row("blocks".into(), s);
    }
    if !fs.json {
        print!(
            "{}",
            text::table(&["where", "size", "used", "free", "use"], &rows)
        );
    }
    Ok(json!({ "servers": servers, "blocks": shown }))
}

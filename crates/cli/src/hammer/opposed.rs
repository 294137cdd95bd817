//! Opposed renames: several clients move a few subtrees into each other, again and again. Nothing may ever be
//! lost, and no subtree may end up in itself: this is what renames that are checked two by two, or one after
//! the other on different servers, get wrong.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::progress::{Progress, Unit};
use anyhow::{Context, Result, anyhow, bail};
use pando_client::Client;
use pando_env::Env;
use pando_net::Waiting;
use pando_types::{Cred, Errno, Name, Perm};
use pando_wire::{Op, RenameMode, Statement};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Subtrees.
const TREES: usize = 5;
/// Files in each of a subtree's two directories.
const FILES: usize = 3;
/// How long a client tries before it gives an operation up: servers may be killed and started meanwhile.
const GIVE_UP: Duration = Duration::from_secs(120);

/// How much.
#[derive(clap::Args, Clone, Debug)]
pub struct Opposed {
    /// Clients at once, each with a session of its own.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub clients: u64,
    /// Renames that are tried in all.
    #[arg(long, default_value_t = 10_000)]
    pub rounds: u64,
    /// Name of the run: the directory it works in, which must not be there yet.
    #[arg(long)]
    pub name: String,
}

/// What came of the tries of all clients.
#[derive(Default)]
struct Tally {
    tried: AtomicU64,
    moved: AtomicU64,
    loops: AtomicU64,
    late: AtomicU64,
}

pub fn run(args: &Args, opposed: &Opposed) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let connection = Connection::open(&dir, Party::Client, Waiting::default(), GIVE_UP)?;
    let top = format!("/opposed-{}", opposed.name);
    let all = connection
        .run(plant_trees(&connection, &top))
        .with_context(|| format!("cannot make {top}; choose another --name if it is there already"))?;
    let (tally, began) = (Tally::default(), Instant::now());
    let progress = Progress::new("renames", Unit::Items, opposed.rounds);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let clients = (0..opposed.clients).map(|_| {
            let (dir, top, tally) = (&dir, &top, &tally);
            scope.spawn(move || {
                let connection = Connection::open(dir, Party::Client, Waiting::default(), GIVE_UP)?;
                connection.run(client(&connection, top, opposed.rounds, tally))
            })
        });
        let clients: Vec<_> = clients.collect();
        let mut shown = 0;
        while clients.iter().any(|c| !c.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            let tried = tally.tried.load(Ordering::Relaxed).min(opposed.rounds);
            progress.add(tried - shown);
            shown = tried;
        }
        let ended = clients.into_iter().map(|c| c.join());
        ended
            .map(|r| r.unwrap_or_else(|_| Err(anyhow!("a client panicked"))))
            .collect()
    });
    progress.finish();
    results.into_iter().collect::<Result<()>>()?;
    let seconds = began.elapsed().as_secs_f64();
    let found = connection.run(walk(&connection, &top))?;
    let wrong = compare(&all, &found);
    let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
    let (moved, loops, late) = (get(&tally.moved), get(&tally.loops), get(&tally.late));
    if args.json {
        let report = serde_json::json!({
            "clients": opposed.clients, "renames": moved + loops + late, "moved": moved, "loops_refused": loops,
            "too_late": late, "seconds": seconds, "objects": all.len(), "wrong": wrong,
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!(
            "{} clients, {} renames in {seconds:.1} s: {moved} moved a subtree, {loops} would have made a loop, {late} came too late",
            opposed.clients,
            moved + loops + late
        );
        println!(
            "{} files and directories, each there once: {}",
            all.len(),
            wrong.is_empty()
        );
        wrong.iter().for_each(|w| println!("WRONG: {w}"));
    }
    if !wrong.is_empty() {
        bail!(
            "{} files or directories are not where they must be; run `pando fsck`",
            wrong.len()
        );
    }
    Ok(())
}

fn tree(n: usize) -> String {
    format!("t{n}")
}

/// The subtrees: `tN/in`, with files in both. Returns the names of everything; no name is there twice.
async fn plant_trees(connection: &Connection, top: &str) -> Result<BTreeSet<String>, Errno> {
    let (client, cred, perm) = (&connection.client, Cred::root(), Perm::new(0o755));
    client.mkdir(&cred, top.as_bytes(), perm).await?;
    let mut all = BTreeSet::new();
    for n in 0..TREES {
        let tree = tree(n);
        let inner = format!("{tree}-in");
        for (path, name) in [
            (format!("{top}/{tree}"), tree.clone()),
            (format!("{top}/{tree}/{inner}"), inner.clone()),
        ] {
            client.mkdir(&cred, path.as_bytes(), perm).await?;
            for file in 0..FILES {
                let name = format!("{name}-f{file}");
                // A symbolic link says in one record what it is.
                let link = format!("{path}/{name}");
                client.symlink(&cred, name.as_bytes(), link.as_bytes()).await?;
                all.insert(name);
            }
            all.insert(name);
        }
    }
    Ok(all)
}

/// One client: it stands in all subtrees, wherever they are, and moves one into another's inner directory or
/// to the top.
async fn client(connection: &Connection, top: &str, rounds: u64, tally: &Tally) -> Result<()> {
    let client = &connection.client;
    // Where it stands is found before anything moves or while everything does.
    let trees = loop {
        match stand(connection, top).await {
            Ok(trees) => break trees,
            Err(Errno::NotFound | Errno::Stale) => {}
            Err(e) => bail!("cannot look around in {top}: {e}"),
        }
    };
    // The top, and the inner directories after it.
    let inner = (0..TREES).map(|n| format!("{}-in", tree(n)));
    let mut places: Vec<Statement> = std::iter::once("top".to_owned())
        .chain(inner)
        .map(|name| trees[&name].clone())
        .collect();
    let mut last = [0; TREES];
    while tally.tried.fetch_add(1, Ordering::Relaxed) < rounds {
        let r = connection.reactor.random();
        let (moved, into) = ((r % TREES as u64) as usize, (r >> 16) as usize % places.len());
        let name = Name::new(tree(moved).as_bytes()).map_err(|_| anyhow!("no name"))?;
        let counter = match relocate(client, &places, name, &mut last[moved], into).await {
            Ok(()) => &tally.moved,
            Err(Errno::Invalid) => &tally.loops,
            // Another client moved it meanwhile, or it is there already.
            Err(Errno::NotFound | Errno::Exists) => &tally.late,
            // Refused, not executed: so much has been moved meanwhile that it is not known any more what
            // became of a place.
            Err(Errno::Stale) => {
                for place in &mut places {
                    *place = client.reopen(place).await?.dir.ok_or(Errno::NotDir)?;
                }
                &tally.late
            }
            Err(e) => bail!("{} into place {into}: {e}", tree(moved)),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
    client.close().await;
    Ok(())
}

/// Moves a subtree from where it is, which is looked for first where it was last, into a place.
async fn relocate(
    client: &Client,
    places: &[Statement],
    name: Name,
    last: &mut usize,
    into: usize,
) -> Result<(), Errno> {
    let cred = Cred::root();
    for at in std::iter::once(*last).chain(0..places.len()) {
        let op = Op::Lookup {
            dir: places[at].clone(),
            name: name.clone(),
        };
        match client.op(&cred, op).await {
            Ok(_) => {
                *last = at;
                let op = Op::Rename {
                    src: places[at].clone(),
                    src_name: name.clone(),
                    dst: places[into].clone(),
                    dst_name: name,
                    mode: RenameMode::NoReplace,
                    held: false,
                };
                return client.op(&cred, op).await.map(drop);
            }
            Err(Errno::NotFound) => {}
            Err(e) => return Err(e),
        }
    }
    // It moved while it was looked for.
    Err(Errno::NotFound)
}

/// Handles of the top, all subtrees and their inner directories.
async fn stand(connection: &Connection, top: &str) -> Result<BTreeMap<String, Statement>, Errno> {
    let (client, cred) = (&connection.client, Cred::root());
    let mut trees = BTreeMap::new();
    let dir = client.hold_path(&cred, top.as_bytes(), true).await?.entry.dir;
    let dir = dir.ok_or(Errno::NotDir)?;
    let mut next = vec![dir.clone()];
    trees.insert("top".to_owned(), dir);
    while let Some(dir) = next.pop() {
        let mut listing = client.list(&cred, dir, true);
        loop {
            let page = listing.next_page().await?;
            if page.is_empty() {
                break;
            }
            for entry in page {
                if let Some(found) = entry.view.and_then(|v| v.dir) {
                    let handle = client.hold(&found).await?;
                    if trees.insert(entry.name.to_string(), handle.clone()).is_none() {
                        next.push(handle);
                    }
                }
            }
        }
    }
    // What moved while it was looked for is looked for again.
    if trees.len() == 1 + 2 * TREES {
        Ok(trees)
    } else {
        Err(Errno::NotFound)
    }
}

/// Everything below a directory, by name, as often as it is there.
async fn walk(connection: &Connection, top: &str) -> Result<Vec<String>> {
    let (client, cred) = (&connection.client, Cred::root());
    let mut found = Vec::new();
    let mut next = vec![top.as_bytes().to_vec()];
    while let Some(path) = next.pop() {
        let at = String::from_utf8_lossy(&path).into_owned();
        let dir = client.hold_path(&cred, &path, true).await;
        let dir = dir.map_err(|e| anyhow!("{at}: {e}"))?;
        let mut listing = client.list(&cred, dir.entry.dir.context("not a directory")?, true);
        loop {
            let page = listing.next_page().await.map_err(|e| anyhow!("{at}: {e}"))?;
            if page.is_empty() {
                break;
            }
            for entry in page {
                let path = [&path, &b"/"[..], entry.name.as_bytes()].concat();
                if entry.view.is_some_and(|v| v.dir.is_some()) {
                    next.push(path);
                } else {
                    let says = client.readlink(&cred, &path).await;
                    let says = says.map_err(|e| anyhow!("{}: {e}", String::from_utf8_lossy(&path)))?;
                    if says != entry.name.as_bytes() {
                        bail!("{} says {}", entry.name, String::from_utf8_lossy(&says));
                    }
                }
                found.push(entry.name.to_string());
            }
        }
    }
    Ok(found)
}

/// What is not there exactly once.
fn compare(all: &BTreeSet<String>, found: &[String]) -> Vec<String> {
    let mut times: BTreeMap<&str, usize> = all.iter().map(|name| (name.as_str(), 0)).collect();
    for name in found {
        *times.entry(name).or_default() += 1;
    }
    let wrong = times
        .into_iter()
        .filter(|(name, n)| *n != 1 || !all.contains(*name));
    wrong
        .map(|(name, n)| format!("{name} is there {n} times"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_doubled_or_foreign_is_wrong() {
        let all = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let found = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert!(compare(&all, &found(&["b", "a"])).is_empty());
        assert_eq!(compare(&all, &found(&["b"])), ["a is there 0 times"]);
        assert_eq!(compare(&all, &found(&["b", "a", "b", "c"])).len(), 2);
    }
}

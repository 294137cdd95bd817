//! Names of divided directories, by the servers that have them: what a client syncs and says to have open
//! must be where the entry is. No faults but those of a test, one client, the judge watching.

use crate::births::{Program, named, on_a_cluster_of};
use crate::settings::Settings;
use crate::world::{Death, MS};
use pando_cluster::{DirectoryUpdates, Placement};
use pando_store::Durability;
use pando_types::{Cred, Ids, Part, Perm};
use pando_wire::{Op, Statement};
use std::collections::BTreeSet;
use std::time::Duration;

const PLACEMENTS: [Placement; 2] = [Placement::Split(6), Placement::Entry];

/// On a filesystem whose servers sync nothing by themselves.
fn on_divided<F: Future<Output = ()> + 'static>(
    placement: Placement,
    program: impl FnOnce(Program) -> F + 'static,
) {
    let change = move |settings: &mut Settings| {
        settings.ids = Ids::Placed;
        settings.id_bits = 128;
        settings.placement = placement;
        settings.updates = match placement {
            Placement::Entry => DirectoryUpdates::TwoPhase,
            Placement::Split(_) | Placement::Directory | Placement::Coupled => DirectoryUpdates::ParentFirst,
        };
        settings.durability = Durability::Async;
        settings.async_period = 100_000_000 * MS;
        // Nor because numbers are reserved.
        settings.limits.number_block = 10_000;
    };
    on_a_cluster_of(change, program);
}

impl Program {
    async fn divided(&self) -> Statement {
        let (cred, perm) = (Cred::root(), Perm::new(0o755));
        self.client.mkdir(&cred, b"/d", perm).await.expect("made");
        let dir = self.client.dir(&cred, b"/d").await.expect("there");
        for n in 0..24 {
            self.make_file(&dir, &format!("file-{n}")).await;
        }
        // It is split, and what was given away is swept.
        self.wait(Duration::from_secs(5)).await;
        dir
    }

    /// The part that has a name, by the records of all servers.
    fn part(&self, dir: &Statement, text: &str) -> Part {
        let hash = self.client.map().widths().name(dir.salt, &named(text));
        let judge = self.cluster().judge();
        judge.with_model(|_, tree| tree.part_with(dir.id, hash.upper()))
    }

    async fn power_cut(&self) {
        let cluster = self.cluster();
        for index in 0..cluster.servers.len() {
            cluster.kill(index, Death::Power, Some(10 * MS));
        }
        self.settle().await;
        while !cluster.all_serve() {
            self.settle().await;
        }
    }
}

#[test]
fn a_name_that_was_synced_survives_a_power_cut() {
    for placement in PLACEMENTS {
        on_divided(placement, |p| async move {
            let dir = p.divided().await;
            p.client.sync_dir(&dir).await.expect("synced");
            let mut servers = BTreeSet::new();
            for n in 0..8 {
                let text = format!("later-{n}");
                p.make_file(&dir, &text).await;
                p.client.sync_entry(&dir, &named(&text)).await.expect("synced");
                servers.insert(p.server_of(p.part(&dir, &text).slot()));
                p.power_cut().await;
                let (dir, name) = (dir.clone(), named(&text));
                let found = p.op(Op::Lookup { dir, name }).await;
                assert!(found.is_ok(), "{text}: {found:?}");
            }
            assert!(servers.len() > 1, "it is on several servers");
        });
    }
}

#[test]
fn a_file_is_said_to_be_open_where_its_entry_is() {
    for placement in PLACEMENTS {
        on_divided(placement, |p| async move {
            let dir = p.divided().await;
            // As another mount would be, which knows no part.
            p.client.forget_parts();
            let mut parts = BTreeSet::new();
            for n in 0..24 {
                let text = format!("file-{n}");
                let (dir, name) = (dir.clone(), named(&text));
                let part = p.part(&dir, &text);
                let open = Op::Open { dir, name, want: 4 };
                let (_, kept) = p.client.op_open(&Cred::root(), open).await;
                assert_eq!(kept.expect("it is kept").file().slot, part.slot(), "{text}");
                parts.insert(part);
            }
            assert!(parts.len() > 1, "it has several parts");
        });
    }
}

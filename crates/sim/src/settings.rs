//! How one seed is set up: sizes, limits, devices, mixtures. Everything follows from the seed.

use crate::disk::Speed;
use crate::world::{MS, SEC, Time};
use pando_cluster::{DirectoryUpdates, LeaseLength, Placement};
use pando_env::rng::Rng;
use pando_server::Limits;
use pando_store::Durability;
use pando_types::Ids;
use std::time::Duration;

/// A profile whose choices a seed runs with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum System {
    /// The default profile, and those that differ by a setting which every seed draws.
    Pando,
    /// IndexFS.
    IndexFs,
    /// AsyncFS without deferral: entries one by one, directories changed by two-phase commit.
    PerEntry,
}

impl System {
    /// The system of a profile's name.
    pub fn of_word(word: &str) -> Option<System> {
        match word {
            "pando" => Some(System::Pando),
            "indexfs" => Some(System::IndexFs),
            "asyncfs-without-deferral" => Some(System::PerEntry),
            _ => None,
        }
    }

    /// Its profile's name.
    pub fn word(self) -> &'static str {
        match self {
            System::Pando => "pando",
            System::IndexFs => "indexfs",
            System::PerEntry => "asyncfs-without-deferral",
        }
    }
}

/// The setup of a seed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Metadata servers.
    pub servers: u16,
    /// Client machines.
    pub clients: u16,
    /// Operations to run before the healing begins.
    pub operations: u64,
    /// Faults to plan at least before the healing begins.
    pub faults: u64,
    /// Durability of all stores.
    pub durability: Durability,
    /// In async durability, time between two syncs.
    pub async_period: Time,
    /// Bits of name hashes.
    pub name_bits: u8,
    /// Bits of directory IDs.
    pub id_bits: u8,
    /// How new directories get their IDs.
    pub ids: Ids,
    /// Whether directories are split, and when.
    pub placement: Placement,
    /// How directories of two servers are changed.
    pub updates: DirectoryUpdates,
    /// Largest inline file.
    pub inline_limit: u32,
    /// Size of blocks.
    pub block_size: u32,
    /// Servers' limits.
    pub limits: Limits,
    /// Devices.
    pub speed: Speed,
    /// Names in use.
    pub names: usize,
    /// Directories a client keeps in mind.
    pub known_dirs: usize,
    /// Live directories at which nobody makes more: of the few IDs of 8 bits there must always be one.
    pub directories: usize,
    /// Mean pause of a client between two operations.
    pub think: Time,
    /// Mean time between two faults.
    pub fault_gap: Time,
    /// Of a hundred operations so many are lies (see [`crate::liar`]).
    pub lies: u64,
    /// Whether all clients are one instance, and may use each other's statements.
    pub accomplices: bool,
    /// Bytes of directories a client keeps in mind.
    pub cache_bytes: usize,
    /// Whether clients have identities with claims.
    pub keyed: bool,
    /// How long leases are; `None`: lazy invalidation.
    pub lease: Option<LeaseLength>,
    /// For so long coordination counts a server as being there.
    pub coord_lease: Time,
    /// Servers that may join; with any, others leave too.
    pub spares: u16,
    /// Whether identities are made and revoked while clients run.
    pub revokes: bool,
    /// Programs that move a few directories into each other.
    pub movers: u16,
    /// They do so in a ring of so many; 0: anyhow.
    pub ring: u64,
    /// Whether faults mostly strike at steps of protocols.
    pub aimed: bool,
    /// Whether servers that join leave again at once, so that slots go and come back.
    pub pendulum: bool,
    /// After so many of a hundred operations a program does nothing for a while.
    pub naps: u64,
    /// Messages of others that liars remember.
    pub overhears: usize,
    /// Whether an operator takes cuts.
    pub cuts: bool,
    /// Machines whose programs lock files.
    pub lockers: u16,
}

impl Settings {
    /// The setup of a seed, with the choices of a system, or of one that it draws.
    pub fn with_system(rng: &mut Rng, system: Option<System>) -> Settings {
        let settings = Settings::of(rng);
        let mut systems = rng.fork(12);
        let drawn = match systems.percent(15) {
            true => System::IndexFs,
            // What the others draw is what it was before there was this one.
            false if rng.fork(14).percent(12) => System::PerEntry,
            false => System::Pando,
        };
        let (ids, placement) = match system.unwrap_or(drawn) {
            System::Pando => (Ids::Predicted, Placement::Directory),
            // Of 8 bits there are too few to find one in each slot.
            System::IndexFs if settings.id_bits <= 8 => (Ids::Predicted, Placement::Directory),
            System::IndexFs => (Ids::Placed, Placement::Split(systems.range(3, 8) as u32)),
            System::PerEntry => (Ids::Placed, Placement::Entry),
        };
        let mut leases = rng.fork(13);
        let lease = match placement {
            Placement::Split(_) if leases.percent(30) => Some(length(&mut leases)),
            // Whether a name is there is known by the log of changes alone.
            Placement::Entry => None,
            Placement::Split(_) | Placement::Directory | Placement::Coupled => settings.lease,
        };
        let mut settings = Settings {
            ids,
            placement,
            lease,
            ..settings
        };
        if placement == Placement::Entry {
            settings.updates = DirectoryUpdates::TwoPhase;
            settings.id_bits = 128;
        }
        // Shorter than most pauses.
        settings.limits.localised = Duration::from_millis(800);
        settings
    }

    /// The default workload's setup of a seed.
    pub fn of(rng: &mut Rng) -> Settings {
        // A stream of its own: what the others draw is what it was before there were leases.
        let mut leases = rng.fork(1);
        let mut elections = rng.fork(2);
        let mut movers = rng.fork(3);
        let mut growth = rng.fork(4);
        let mut steps = rng.fork(5);
        let mut settling = rng.fork(6);
        let mut updates = rng.fork(7);
        let mut owing = rng.fork(8);
        let mut silence = rng.fork(9);
        let mut cuts = rng.fork(10);
        let mut locks = rng.fork(11);
        // With this number most seeds that found planted bugs before there were two ways to look do still.
        let mut looks = rng.fork(86);
        let narrow = rng.percent(40);
        let mut limits = Limits::tiny();
        limits.lock_wait = Duration::from_millis(rng.range(50, 800));
        limits.peer_timeout = Duration::from_millis(rng.range(20, 300));
        limits.inquire_after = Duration::from_millis(rng.range(50, 500));
        limits.session_timeout = Duration::from_millis(if rng.percent(40) {
            rng.range(800, 6_000)
        } else {
            rng.range(6_000, 60_000)
        });
        limits.tick = Duration::from_millis(rng.range(50, 250));
        limits.server_lease = Duration::from_millis(elections.range(300, 2_000));
        limits.slots_at_once = [3, 40, 400][growth.index(3)];
        limits.rest_wait = Duration::from_millis(growth.range(5, 200));
        limits.owed_after = Duration::from_millis([0, 2, 20][owing.index(3)]);
        limits.settle_after = Duration::from_millis([0, 0, 5, 50][settling.index(4)]);
        limits.cut_hold = Duration::from_millis(cuts.range(100, 1_000));
        limits.cut_idle = Duration::from_millis(cuts.range(500, 5_000));
        limits.parents = [1, 2, 4, 40][steps.index(4)];
        limits.at_once = looks.percent(50);
        limits.number_block = rng.range(1, 8);
        limits.invalidations = [6, 20, 100][rng.index(3)];
        limits.page = rng.range(1, 6) as u32;
        let settings = Settings {
            servers: rng.range(3, 8) as u16,
            clients: rng.range(4, 16) as u16,
            operations: rng.range(2_000, 3_000),
            faults: rng.range(8, 16),
            durability: match rng.percent(65) {
                true => Durability::Sync,
                false => Durability::Async,
            },
            async_period: rng.range(20 * MS, 5 * SEC),
            name_bits: if narrow { 4 } else { 55 },
            id_bits: match rng.below(4) {
                _ if !narrow => 128,
                0 => 8,
                _ => 16,
            },
            ids: Ids::Predicted,
            placement: Placement::Directory,
            updates: match updates.percent(30) {
                true => DirectoryUpdates::TwoPhase,
                false => DirectoryUpdates::ParentFirst,
            },
            inline_limit: 256,
            block_size: 512,
            limits,
            speed: Speed::good(rng),
            names: rng.range(3, 14) as usize,
            known_dirs: rng.range(3, 24) as usize,
            // Those that are under way at that moment come on top.
            directories: 50,
            think: if rng.percent(50) { 0 } else { rng.below(20 * MS) },
            fault_gap: rng.range(50 * MS, SEC),
            lies: if rng.percent(20) { rng.range(1, 10) } else { 0 },
            accomplices: rng.percent(60),
            cache_bytes: [0, 4_000, 16_000, 1 << 20][rng.index(4)],
            keyed: rng.percent(40),
            lease: leases.percent(15).then(|| fixed(&mut leases)),
            coord_lease: elections.range(300, 3_000) * MS,
            spares: 0,
            revokes: false,
            movers: 0,
            ring: 0,
            aimed: false,
            pendulum: false,
            naps: 0,
            overhears: 0,
            cuts: cuts.percent(25),
            lockers: 0,
        };
        // Of 8 bits there are too few IDs for directories that stay.
        let opposed = movers.percent(35) && settings.id_bits > 8;
        let ring = if opposed && movers.percent(60) {
            movers.range(2, 3)
        } else {
            0
        };
        let grows = growth.percent(40);
        let pendulum = grows && steps.percent(75);
        // Who is cut off from some servers for a moment ends there, and lives where slots go next (H120).
        let mut limits = settings.limits.clone();
        if pendulum && silence.percent(80) {
            limits.session_timeout = Duration::from_millis(silence.range(300, 2_000));
        }
        Settings {
            limits,
            movers: match (opposed, ring) {
                (false, _) => 0,
                (true, 0) => movers.range(3, 8) as u16,
                (true, length) => movers.range(length, 6) as u16,
            },
            ring,
            lockers: match locks.percent(35) {
                true => locks.range(2, 4) as u16,
                false => 0,
            },
            overhears: if settings.lies > 0 { 200 } else { 0 },
            servers: if pendulum {
                steps.range(3, 4) as u16
            } else {
                settings.servers
            },
            spares: match (grows, pendulum) {
                (false, _) => 0,
                (true, false) => growth.range(1, 3) as u16,
                (true, true) => growth.range(3, 6) as u16,
            },
            pendulum,
            aimed: steps.percent(if ring > 0 || pendulum { 75 } else { 30 }),
            naps: if steps.percent(35) { steps.range(1, 4) } else { 0 },
            revokes: settings.keyed && rng.percent(50),
            ..settings
        }
    }
}

/// How long leases are where directories split (IndexFS §II-B).
fn length(rng: &mut Rng) -> LeaseLength {
    let fixed = fixed(rng);
    let millis = fixed.longest().as_millis() as u32;
    match rng.index(3) {
        0 => fixed,
        1 => LeaseLength::Depth(millis),
        _ => LeaseLength::Rate(millis / 3),
    }
}

fn fixed(rng: &mut Rng) -> LeaseLength {
    LeaseLength::Fixed(rng.range(300, 1_500) as u32)
}

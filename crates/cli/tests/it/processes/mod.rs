//! Real processes: slow, and one by one, but for those that mostly wait (`scripts/test.d/55-process.sh`).

mod asyncfs;
mod backup;
mod blocks;
mod bulk;
mod columns;
mod coordination;
mod damage;
mod dump;
mod folder;
mod grow;
mod indexfs;
mod kills;
mod opposed;
mod plans;
mod power;
mod repair;
mod restart;
mod split;
mod standby;
mod trees;

//! Real processes: slow, and by themselves (`scripts/test.d/55-process.sh`).

mod zookeeper;

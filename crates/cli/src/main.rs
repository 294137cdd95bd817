//! `pando`: one program for servers, mounts, operators and newcomers.

mod addresses;
mod allocator;
mod args;
mod auth;
mod backup;
mod bench;
mod blocks;
mod cluster_dir;
mod completion;
mod connect;
mod coordination;
mod crew;
mod device;
mod down;
mod explain;
mod format;
mod fs;
mod fsck;
mod gc;
mod grow;
mod hammer;
mod key_file;
mod locks;
mod map;
mod metrics;
mod mount;
mod pki;
mod process;
mod progress;
mod restart;
mod scale;
mod server;
mod server_options;
mod sim;
mod standby;
mod status;
mod store_kinds;
mod stores;
mod text;
mod up;

use args::{Args, Command};
use std::process::ExitCode;

/// The simulator spends a seventh of its time on small blocks.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    quiet_when_nobody_reads();
    if let Some(call) = mount::helper::called() {
        return mount::helper::run(call);
    }
    let args = Args::of_process().unwrap_or_else(|e| wrong_usage(&e));
    // What the simulator breaks is no news, unless somebody asks.
    if args.verbose > 0 || !matches!(args.command, Command::Sim(_)) {
        process::log_to_stderr(args.verbose);
    }
    match run(&args) {
        Ok(code) => code,
        Err(e) => {
            if args.json {
                let mut told = grow::how_far(&e).unwrap_or_else(|| serde_json::json!({}));
                told["error"] = format!("{e:#}").into();
                println!("{told}");
            } else {
                eprintln!("pando: {e:#}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Help, or what is wrong with the command line. For the simulator 2 means a wrong result: wrong usage is 64
/// there.
fn wrong_usage(e: &clap::Error) -> ! {
    let _ = e.print();
    let sim = std::env::args_os().any(|a| a == "sim");
    std::process::exit(if sim && e.use_stderr() { 64 } else { e.exit_code() })
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Up(up) => up::run(args, up)?,
        Command::Down => down::run(args)?,
        Command::Format(format) => format::run(args, format)?,
        Command::Server(server) => server::run(args, server)?,
        Command::Fs(command) => return fs::run(args, command),
        Command::Status => return status::run(args),
        Command::Locks(command) => return locks::run(args, command),
        Command::Restart(command) => restart::run(args, command)?,
        Command::Explain(command) => return explain::run(args, command),
        Command::Backup(command) => return backup::backup(args, command),
        Command::Restore(command) => backup::restore(args, command)?,
        Command::Fsck(command) => return Ok(fsck::run(args, command)),
        Command::Gc(command) => return Ok(gc::run(args, command)),
        Command::Bench(command) => return bench::run(args, command),
        Command::Completion(command) => completion::run(command)?,
        Command::Sim(command) => return sim::run(args, command),
        Command::Join(options) => grow::join(args, options)?,
        Command::Drain(options) => grow::drain(args, options)?,
        Command::Rebalance(options) => grow::rebalance(args, options)?,
        Command::Map(command) => return map::run(args, command),
        Command::Auth(command) => auth::run(args, command)?,
        Command::Mount(mount) => mount::run(args, mount)?,
        Command::Umount { mountpoint, lazy } => mount::run_umount(args, mountpoint, *lazy)?,
        Command::Hammer(command) => hammer::run(args, command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `pando ls | head`: whoever stops reading has what they want. `println!` panics then.
fn quiet_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>();
        if text.is_some_and(|t| t.starts_with("failed printing to stdout") && t.contains("Broken pipe")) {
            std::process::exit(0);
        }
        usual(info);
    }));
}

//! `pando completion`.

use crate::args::Args;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a shell's completion script.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando completion bash > ~/.local/share/bash-completion/completions/pando\n  pando completion zsh > ~/.zfunc/_pando\n  pando completion fish > ~/.config/fish/completions/pando.fish"
)]
pub struct CompletionArgs {
    /// For which shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

pub fn run(args: &CompletionArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "pando", &mut script);
    crate::fs::print(&script)
}

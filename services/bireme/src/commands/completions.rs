//! `bireme completions`: a completion script for a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::Result;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  bireme completions bash > ~/.local/share/bash-completion/completions/bireme
  bireme completions zsh > \"${fpath[1]}/_bireme\"
  bireme completions fish > ~/.config/fish/completions/bireme.fish";

/// Arguments of `bireme completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the script for `command`, the whole command line.
pub fn run(args: &CompletionsArgs, mut command: Command, out: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "bireme", &mut script);
    out.bytes(&script)
}

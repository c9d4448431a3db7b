//! Completion scripts, made from the command line's own outline.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// Completions of one shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsCommand {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(command: &CompletionsCommand) -> anyhow::Result<ExitCode> {
    // Into memory first: the generator panics where the pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut crate::Cli::command(), "levada", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

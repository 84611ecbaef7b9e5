//! `transit-plan plot`: not written yet.

use std::process::ExitCode;

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always, until it is written.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("plot is not written yet")
}

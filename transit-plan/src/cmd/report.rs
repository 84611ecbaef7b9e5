//! `transit-plan report`: not written yet.

use std::process::ExitCode;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always, until it is written.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("report is not written yet")
}

//! `transit-plan cut`: not written yet.

use std::process::ExitCode;

/// Arguments of `cut`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always, until it is written.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("cut is not written yet")
}

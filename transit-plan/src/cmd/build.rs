//! `transit-plan build`: not written yet.

use std::process::ExitCode;

/// Arguments of `build`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always, until it is written.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("build is not written yet")
}

//! `transit-plan inspect`: not written yet.

use std::process::ExitCode;

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always, until it is written.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("inspect is not written yet")
}

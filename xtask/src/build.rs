//! Building what tests and the demo run: `cargo test` alone builds neither shims nor launchers.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Packages whose programs or libraries other processes load.
const PACKAGES: &[&str] = &[
    "soft-gpu",
    "transit-programs",
    "transit-record-shim",
    "transit-replay-shim",
    "transit-record",
    "transit-replay",
    "transit-plan",
];

/// Runs cargo with `arguments`, showing its output, and fails if it fails.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    run(Command::new(env!("CARGO")).args(arguments))
}

/// Runs a command in the workspace, showing its output, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    command.current_dir(transit_harness::workspace());
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Builds all of [`PACKAGES`] in the dev profile.
pub(crate) fn everything() -> Result<()> {
    let mut arguments = vec!["build", "--quiet"];
    for package in PACKAGES {
        arguments.extend(["--package", package]);
    }
    cargo(&arguments)?;
    transit_harness::require_fresh()
}

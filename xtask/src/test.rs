//! `cargo xtask test`: what `.ci/run` calls.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::build::{cargo, everything};

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only build and test: no format check, no lints.
    #[arg(long)]
    quick: bool,
}

/// Faults of the software GPU, each with the test that must turn red under it.
const MUTATIONS: &[(&str, &str)] = &[
    (
        "drop-event-wait",
        "trainer::results_do_not_depend_on_interleaving",
    ),
    (
        "drop-argument-copy",
        "trainer::results_do_not_depend_on_interleaving",
    ),
    (
        "drop-migration",
        "trainer::results_do_not_depend_on_oversubscription",
    ),
];

/// Format, lints, tests, mutation check.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.quick {
        cargo(&["fmt", "--all", "--check"])?;
        cargo(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])?;
    }
    everything()?;
    cargo(&["test", "--quiet", "--workspace"])?;
    mutations()
}

/// Runs each named test with its fault switched on and demands that it fails: a test that passes
/// with a lost migration or a missing wait would prove nothing.
fn mutations() -> Result<()> {
    for (mutation, test) in MUTATIONS {
        let mut command = Command::new(env!("CARGO"));
        command.args([
            "test",
            "--quiet",
            "--package",
            "transit-tests",
            "--test",
            "integration",
        ]);
        command.args(["--", "--exact", test]);
        command
            .current_dir(transit_harness::workspace())
            .env("TRANSIT_TEST_MUTATE", mutation);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            text.contains("running 1 test"),
            "no test named {test}: {text}"
        );
        ensure!(
            !output.status.success(),
            "{test} stays green under {mutation}: it does not see that fault"
        );
        println!("mutation {mutation}: {test} turns red, as it must");
    }
    Ok(())
}

//! `cargo xtask bench`: what decoding, planning, simulating and a hooked launch cost.

use anyhow::Result;

use crate::build::cargo;
use crate::launches;

/// Runs all benchmarks; the tables of the launch path come last. Whether it keeps to its budget.
pub(crate) fn run() -> Result<bool> {
    for (package, example) in [
        ("transit-format", "bench_decode"),
        ("transit-plan", "plan_bench"),
        ("transit-cluster", "cluster_bench"),
    ] {
        cargo(&[
            "run",
            "--release",
            "--package",
            package,
            "--example",
            example,
        ])?;
    }
    launches::run()
}

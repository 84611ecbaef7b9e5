//! Shared by the integration tests: the small trainer, its weights, plans made from a recording.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use transit_harness::{Ran, SoftGpu};

/// A trainer small enough that a run takes about a second: its peak is about 110 MiB.
pub(crate) const SMALL: &[&str] = &["--layers", "3", "--elements", "524288", "--steps", "8"];

/// A card the small trainer fits into.
pub(crate) const PLENTY_BYTES: u64 = 1 << 30;

/// The small trainer's arguments and some more.
pub(crate) fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

/// Fails with both streams if a run did not end well.
pub(crate) fn good(ran: &Ran) {
    assert!(
        ran.output.status.success(),
        "{}\n{}\n{}",
        ran.output.status,
        ran.stdout(),
        ran.stderr()
    );
}

/// The hash of the final weights a trainer printed.
pub(crate) fn weights(ran: &Ran) -> String {
    good(ran);
    let out = ran.stdout();
    let last = out.lines().last().unwrap_or_default();
    last.split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// The weights of a bare run with room to spare.
pub(crate) fn bare(arguments: &[&str]) -> String {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    weights(&gpu.run(&mut gpu.trainer(arguments)).unwrap())
}

/// The small trainer's peak of resident bytes on a card with room to spare.
pub(crate) fn peak_bytes(arguments: &[&str]) -> u64 {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let ran = gpu.run(&mut gpu.trainer(arguments)).unwrap();
    good(&ran);
    ran.counter("peak_resident_bytes")
}

/// A card on which the small trainer is oversubscribed by `percent`.
pub(crate) fn card_bytes(percent: u64) -> u64 {
    (peak_bytes(SMALL) * 100 / percent).next_multiple_of(2 << 20)
}

/// Records the small trainer on `gpu` and returns the trace's path.
pub(crate) fn record(gpu: &SoftGpu, options: &[&str]) -> PathBuf {
    let trace = gpu.folder().join("warmup.trace.zst");
    good(&gpu.run(&mut gpu.record(&trace, options, SMALL)).unwrap());
    trace
}

/// Builds a plan beside the trace.
pub(crate) fn build(trace: &Path, policy: &str, hbm_bytes: u64, more: &[&str]) -> PathBuf {
    let plan = trace.with_file_name(format!("{policy}.plan"));
    let hbm = hbm_bytes.to_string();
    let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![
        &"build",
        &trace,
        &"--policy",
        &policy,
        &"--hbm",
        &hbm,
        &"-o",
        &plan,
    ];
    for argument in more {
        arguments.push(argument);
    }
    let output = transit_harness::plan(&arguments).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    plan
}

/// Runs `transit-plan` and returns its output.
pub(crate) fn planner(arguments: &[&str]) -> Output {
    let arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = arguments
        .iter()
        .map(|a| a as &dyn AsRef<std::ffi::OsStr>)
        .collect();
    transit_harness::plan(&arguments).unwrap()
}

/// A file as `inspect --json` shows it.
pub(crate) fn inspect(path: &Path) -> Value {
    let output = planner(&["inspect", path.to_str().unwrap(), "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "inspect --json: {error}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// The replayer's own account of a run.
pub(crate) fn replay_stats(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

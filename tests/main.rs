//! Integration tests, one binary: what a user relies on, checked on the software GPU.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod births;
mod checkpoints;
mod cudart;
mod deps;
mod dlsym;
mod doctor;
mod evidence;
mod exports;
mod fail_open;
mod field_reports;
mod hazards;
mod hostile;
mod launchers;
mod launches;
mod memory_paths;
mod neighbours;
mod policies;
mod ranks;
mod recorder;
mod seeded_faults;
mod storms;
mod tidy;
mod trainer;
mod util;

/// Programs and shims must be built, and not older than their sources.
#[test]
fn everything_is_built_and_fresh() {
    transit_harness::require_fresh().unwrap();
}

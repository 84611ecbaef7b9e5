//! D. Managed memory's speed, and trouble with drivers.

use transit_harness::SoftGpu;

use super::{gpu, linked, text, unchanged};
use crate::util::{SMALL, bare, build, card_bytes, record, replay_stats, weights};

/// Copies became slow once the job had forked workers: the children held the converted pages too.
#[test]
fn field_report_33_converted_memory_is_not_copied_to_children() {
    let gpu = gpu();
    let runs = unchanged(&gpu, &linked(&gpu, "not_copied.c"), &[]);
    for run in [&runs.recorded, &runs.replayed] {
        let said = text(&run.stderr);
        assert!(said.lines().any(|line| line == "not copied"), "{said}");
    }
}

/// A prefetch that failed was an error of the job's. It is a hint: counted, and no more.
#[test]
fn field_report_36_a_prefetch_that_fails_is_counted_and_no_error() {
    let card = card_bytes(141);
    let warm = SoftGpu::new(card).unwrap();
    let plan = build(&record(&warm, &[]), "prefetch", card, &[]);
    let gpu = SoftGpu::new(card)
        .unwrap()
        .with("SOFTGPU_FAULTS", "cuMemPrefetchAsync:1:801");
    let path = gpu.folder().join("replay.json");
    let options = ["--stats", path.to_str().unwrap()];
    let ran = gpu.run(&mut gpu.replay(&plan, &options, SMALL)).unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    let stats = replay_stats(&path);
    assert!(stats["driver_errors"].as_u64() > Some(0), "{stats}");
    assert!(
        ran.stderr().contains("driver calls failed"),
        "{}",
        ran.stderr()
    );
}

//! C. What memory means, and running out of it.

use super::{each_way, gpu, linked, text, unchanged};
use crate::util::{SMALL, bare, good, weights};

/// A ceiling that leaves room for the small trainer only if it frees its cache.
const CEILING: &str = "TRANSIT_CEILING_BYTES";

/// The shim had no effect on expandable segments. Either they are covered, or one line names the
/// setting; the trace keeps the setting.
#[test]
fn field_report_22_expandable_segments_are_named_with_the_setting_to_change() {
    let gpu = gpu().with("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    let runs = unchanged(&gpu, &linked(&gpu, "segments.c"), &[]);
    assert_eq!(runs.stdout(), "5.0 1.0\n");
    for run in [&runs.recorded, &runs.replayed] {
        let said = text(&run.stderr);
        assert!(said.contains("expandable_segments:False"), "{said}");
        assert_eq!(
            said.matches("expandable_segments:False").count(),
            1,
            "{said}"
        );
    }
    let notes = runs.trace().header.notes;
    let noted = |(name, value): &(String, String)| {
        name == "PYTORCH_CUDA_ALLOC_CONF" && value == "expandable_segments:True"
    };
    assert!(notes.iter().any(noted), "{notes:?}");
}

/// Out of memory with unified memory on: other memory needs real device bytes, and nobody counted
/// them.
#[test]
fn field_report_23_bytes_that_stay_device_memory_are_counted_and_shown() {
    let gpu = gpu();
    let runs = unchanged(&gpu, &linked(&gpu, "segments.c"), &[]);
    let totals = runs.trace().totals;
    assert!(totals.unconverted_peak_bytes >= 32 << 20, "{totals:?}");
    let shown = crate::util::inspect(&runs.trace);
    let peak = totals.unconverted_peak_bytes;
    assert!(shown.to_string().contains(&peak.to_string()), "{shown}");
}

/// More was promised than could be had: 58 GiB on a card of 24.
#[test]
fn field_report_24_free_total_and_out_of_memory_come_from_one_budget() {
    let gpu = gpu().with(CEILING, (300_u64 << 20).to_string());
    let runs = each_way(&gpu, &linked(&gpu, "promises.c"), &[], &[]);
    for run in [&runs.recorded, &runs.replayed] {
        let (out, said) = (text(&run.stdout), text(&run.stderr));
        assert!(
            out.contains("had what was promised 1, and no more 1\n"),
            "{out}{said}"
        );
        assert!(
            out.contains("free when out of memory 1, below total 1\n"),
            "{out}{said}"
        );
    }
}

/// PyTorch did not take the shim's error for out of memory.
#[test]
fn field_report_25_out_of_memory_is_the_drivers_and_leaves_the_pointer_alone() {
    let gpu = gpu().with(CEILING, (300_u64 << 20).to_string());
    let runs = each_way(&gpu, &linked(&gpu, "promises.c"), &[], &[]);
    for run in [&runs.bare, &runs.recorded, &runs.replayed] {
        let out = text(&run.stdout);
        assert!(out.starts_with("result 2 pointer kept 1\n"), "{out}");
    }
}

/// Usage of 17 TB: frees of memory that was never seen took a counter below zero.
#[test]
fn field_report_26_wrong_frees_leave_the_books_right() {
    // The first free of memory that is there is refused, too.
    let gpu = gpu().with(CEILING, (300_u64 << 20).to_string());
    let gpu = gpu.with("SOFTGPU_FAULTS", "cuMemFree@1:201");
    let runs = each_way(&gpu, &linked(&gpu, "promises.c"), &[], &[]);
    for run in [&runs.bare, &runs.recorded, &runs.replayed] {
        let out = text(&run.stdout);
        assert!(
            out.ends_with(
                "what the driver did not free is there 1\nwrong frees refused 1\n\
                 free but for what is kept 1\nfree as before 1\n3.0\n"
            ),
            "{out}"
        );
    }
}

/// Managed memory never ran out, so caches were never flushed: there must be a real limit, on which
/// the framework's own retry works.
#[test]
fn field_report_28_a_budget_makes_the_framework_free_its_cache() {
    let gpu = gpu().with(CEILING, (900_u64 << 20).to_string());
    let runs = unchanged(&gpu, &linked(&gpu, "exhaust.c"), &[]);
    let said = runs.stdout();
    assert!(said.contains("turn 3: result 2 kept 1"), "{said}");
    // The caching allocator of the trainer: refused once, it gives its cache back and goes on.
    let peak = crate::util::peak_bytes(SMALL);
    let tight = super::gpu().with(CEILING, (peak * 96 / 100).to_string());
    let path = tight.folder().join("x.trace.zst");
    let ran = tight.run(&mut tight.record(&path, &[], SMALL)).unwrap();
    if ran.output.status.success() {
        assert_eq!(weights(&ran), bare(SMALL));
    } else {
        assert!(
            ran.stderr().contains("cuMemAlloc returned 2"),
            "{}",
            ran.stderr()
        );
    }
}

/// Advice fails where the device cannot access managed memory concurrently; that was told as out of
/// memory.
#[test]
fn field_report_30_advice_that_fails_is_no_failure_of_an_allocation() {
    let card = crate::util::card_bytes(141);
    let warm = transit_harness::SoftGpu::new(card).unwrap();
    let trace = crate::util::record(&warm, &[]);
    let plan = crate::util::build(&trace, "advise", card, &[]);
    let gpu = transit_harness::SoftGpu::new(card)
        .unwrap()
        .with("SOFTGPU_FAULTS", "cuMemAdvise:1:801");
    let path = gpu.folder().join("stats.json.replay");
    let options = ["--stats", path.to_str().unwrap()];
    let ran = gpu.run(&mut gpu.replay(&plan, &options, SMALL)).unwrap();
    good(&ran);
    assert_eq!(weights(&ran), bare(SMALL));
    let stats = crate::util::replay_stats(&path);
    assert!(stats["driver_errors"].as_u64() > Some(0), "{stats}");
}

//! Checkpoints: what is loaded, saved and resumed is the same to the bit, costs what it costs bare,
//! and leaves what the plan has placed in its place.

use std::path::{Path, PathBuf};

use serde_json::Value;
use transit_format::plan::model::{Action, Placement, Plan, Range};
use transit_harness::{Ran, SoftGpu};

use crate::util::{PLENTY_BYTES, SMALL, build, good, replay_stats, weights, with};

/// Tensors of this trainer have segments of their own, as large models' have.
const LARGE: &[&str] = &["--layers", "1", "--elements", "5242880", "--steps", "6"];

/// A checkpoint of step 2 and the final weights of the job that wrote it, bare.
fn checkpoint(folder: &Path, size: &[&str]) -> (PathBuf, String) {
    let path = folder.join("step2.ckpt");
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let mut job = gpu.trainer(size);
    job.arg("--save").arg(&path).args(["--save-at", "2"]);
    let ran = gpu.run(&mut job).unwrap();
    (path, weights(&ran))
}

/// The arguments of a job that resumes from a checkpoint and saves every second step.
fn resuming<'a>(size: &[&'a str], from: &'a Path, to: &'a Path) -> Vec<&'a str> {
    let more = [
        "--resume",
        from.to_str().unwrap(),
        "--save",
        to.to_str().unwrap(),
    ];
    size.iter()
        .copied()
        .chain(more)
        .chain(["--save-every", "2"])
        .collect()
}

/// Device faults of every kind between two marks.
fn faults(ran: &Ran, from: &str, to: &str) -> u64 {
    [
        "first_touch_faults",
        "migrating_faults",
        "remote_faults",
        "map_faults",
    ]
    .iter()
    .map(|counter| ran.rise(from, to, counter))
    .sum()
}

fn replay(gpu: &SoftGpu, plan: &Path, arguments: &[&str]) -> (Ran, Value) {
    let stats = gpu.folder().join("replay.json");
    let options = ["--stats", stats.to_str().unwrap()];
    let ran = gpu.run(&mut gpu.replay(plan, &options, arguments)).unwrap();
    good(&ran);
    (ran, replay_stats(&stats))
}

fn record(gpu: &SoftGpu, arguments: &[&str]) -> PathBuf {
    let trace = gpu.folder().join("warmup.trace.zst");
    good(&gpu.run(&mut gpu.record(&trace, &[], arguments)).unwrap());
    trace
}

/// A card with room for everything: memory is populated when it is made, so nothing is prepared, and
/// nothing faults.
#[test]
fn where_all_fits_loading_training_and_saving_cost_at_most_a_fifth_more_than_bare() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let (from, right) = checkpoint(gpu.folder(), SMALL);
    let to = gpu.folder().join("later.ckpt");
    let job = resuming(SMALL, &from, &to);
    let bare = gpu.run(&mut gpu.trainer(&job)).unwrap();
    assert_eq!(weights(&bare), right);
    let saved = std::fs::read(&to).unwrap();
    let trace = record(&gpu, SMALL);
    for policy in ["base", "prefetch", "advise"] {
        let plan = build(&trace, policy, PLENTY_BYTES, &[]);
        std::fs::remove_file(&to).unwrap();
        let (ran, stats) = replay(&gpu, &plan, &job);
        assert_eq!(weights(&ran), right, "{policy}");
        assert!(
            std::fs::read(&to).unwrap() == saved,
            "{policy}: another checkpoint"
        );
        assert_eq!(stats["copies_prepared"], 0, "{policy}: {stats}");
        for (start, end) in [("load", "loaded"), ("save 4", "saved 4"), ("step 3", "end")] {
            let [ours, bare] = [&ran, &bare].map(|ran| ran.rise(start, end, "virtual_ns"));
            assert!(
                ours * 5 <= bare * 6,
                "{policy}: {start}: {ours} of {bare} ns"
            );
            assert_eq!(faults(&ran, start, end), 0, "{policy}: {start}");
        }
    }
}

/// Faults of all saves.
fn saved_faults(ran: &Ran) -> u64 {
    let each = [
        ("save 4", "saved 4"),
        ("save 6", "saved 6"),
        ("save 8", "saved 8"),
    ];
    each.iter().map(|(from, to)| faults(ran, from, to)).sum()
}

/// On a card that is too small, what is saved lies partly on the host: sent for first, none of it comes
/// fault by fault. (Of tensors as small as these that gains no time: a fault brings most of a block.)
/// What is loaded into lies nowhere yet, and costs no more than with the driver alone.
#[test]
fn what_lies_elsewhere_is_sent_for_before_it_is_copied() {
    let card_bytes = crate::util::card_bytes(190);
    let gpu = SoftGpu::new(card_bytes).unwrap();
    let (from, right) = checkpoint(gpu.folder(), SMALL);
    let to = gpu.folder().join("later.ckpt");
    let job = resuming(SMALL, &from, &to);
    // The recorder prepares nothing, so that it records what the driver does.
    let trace = gpu.folder().join("driver.trace.zst");
    let driver = gpu.run(&mut gpu.record(&trace, &[], &job)).unwrap();
    assert_eq!(weights(&driver), right);
    assert!(saved_faults(&driver) > 0 && faults(&driver, "load", "loaded") > 0);
    let trace = record(&gpu, SMALL);
    for policy in ["base", "prefetch", "advise"] {
        let plan = build(&trace, policy, card_bytes, &[]);
        let (ran, _) = replay(&gpu, &plan, &job);
        assert_eq!(weights(&ran), right, "{policy}");
        let [quick_ns, long_ns] =
            [&ran, &driver].map(|ran| ran.rise("load", "loaded", "virtual_ns"));
        assert!(
            quick_ns * 20 <= long_ns * 21,
            "{policy}: {quick_ns} of {long_ns} ns"
        );
        assert_eq!(saved_faults(&ran), 0, "{policy}");
    }
}

/// Every allocation that only the optimizer touches: its moments.
fn moments(plan: &Plan) -> Vec<u32> {
    let mut only = vec![None; plan.allocs.len()];
    for op in plan.streams.iter().flat_map(|stream| &stream.ops) {
        let name = plan.names.get(op.name as usize).unwrap();
        for pointer in &op.pointers {
            let adam = name.to_lowercase().contains("adam");
            let seen: &mut Option<bool> = &mut only[pointer.0 as usize];
            *seen = Some(seen.unwrap_or(true) && adam);
        }
    }
    (0..)
        .zip(&only)
        .filter(|(_, only)| **only == Some(true))
        .map(|(index, _)| index)
        .collect()
}

/// The plan with the optimizer's moments placed on the host, to be reached there.
fn with_moments_on_the_host(path: &Path) -> (PathBuf, u64) {
    let mut plan = transit_format::plan::read(path).unwrap();
    let mut bytes = 0;
    for alloc in moments(&plan) {
        let range = Range {
            alloc,
            offset: 0,
            bytes: plan.allocs[alloc as usize].bytes,
        };
        bytes += range.bytes;
        for action in [Action::AdvisePreferHost, Action::AdviseAccessedBy] {
            plan.placements.push(Placement { action, range });
        }
    }
    let placed = path.with_file_name("placed.plan");
    let mut sink = Vec::new();
    transit_format::plan::write(&plan, &mut sink).unwrap();
    std::fs::write(&placed, sink).unwrap();
    (placed, bytes)
}

/// Loading puts placed memory where it belongs, saving reads it there, and nothing moves.
#[test]
fn placed_memory_stays_placed_through_loading_and_saving() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let (from, right) = checkpoint(gpu.folder(), LARGE);
    let to = gpu.folder().join("later.ckpt");
    let job = resuming(LARGE, &from, &to);
    let trace = record(&gpu, &job);
    let (plan, moments_bytes) = with_moments_on_the_host(&build(&trace, "base", PLENTY_BYTES, &[]));
    // A checkpoint holds the step, and parameters and two moments of each.
    let state_bytes = from.metadata().unwrap().len() - 4;
    assert_eq!(moments_bytes, state_bytes / 3 * 2);
    let (ran, stats) = replay(&gpu, &plan, &job);
    assert_eq!(weights(&ran), right);
    assert!(stats["copies_prepared"].as_u64() > Some(0), "{stats}");
    let rise = |from: &str, to: &str, counter: &str| ran.rise(from, to, counter);
    assert_eq!(faults(&ran, "load", "loaded"), 0);
    for (save, saved) in [("save 4", "saved 4"), ("save 6", "saved 6")] {
        for counter in ["htod_bytes", "dtoh_bytes"] {
            assert_eq!(rise(save, saved, counter), 0, "{save} {counter}");
        }
        assert_eq!(
            rise(save, saved, "zero_copy_bytes"),
            moments_bytes,
            "{save}"
        );
        assert_eq!(faults(&ran, save, saved), 0, "{save}");
    }
    // The optimizer reads and writes them in place, after a save as before.
    for (from, to) in [
        ("step 3", "save 4"),
        ("step 4", "step 5"),
        ("step 5", "save 6"),
    ] {
        assert_eq!(
            rise(from, to, "zero_copy_bytes"),
            2 * moments_bytes,
            "{from}"
        );
    }
}

/// A resumed run begins in another way than the recorded one; from its first steady iteration on
/// the plan is followed.
#[test]
fn a_resumed_run_is_followed_from_its_first_steady_iteration() {
    let card_bytes = crate::util::card_bytes(141);
    let gpu = SoftGpu::new(card_bytes).unwrap();
    let (from, right) = checkpoint(gpu.folder(), SMALL);
    let trace = record(&gpu, SMALL);
    for policy in ["prefetch", "advise"] {
        let plan = build(&trace, policy, card_bytes, &[]);
        let (ran, stats) = replay(&gpu, &plan, &with(&["--resume", from.to_str().unwrap()]));
        assert_eq!(weights(&ran), right, "{policy}");
        // Six steps are left. What looks like the plan's iteration is followed once to prove it.
        assert_eq!(stats["state"], "tracking", "{policy}: {stats}");
        assert!(stats["iterations"].as_u64() >= Some(5), "{policy}: {stats}");
        assert!(
            stats["ops_matched_percent"].as_f64() > Some(90.0),
            "{policy}: {stats}"
        );
        let done = |counter: &str| ran.rise("step 4", "end", counter);
        let moved = if policy == "prefetch" {
            "prefetch_bytes"
        } else {
            "zero_copy_bytes"
        };
        assert!(
            done(moved) > 0,
            "{policy}: nothing of the plan was done from step 4 on"
        );
    }
}

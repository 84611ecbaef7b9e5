//! Whatever is missing, damaged or different, the job ends as it does without us, and one line says
//! what happened.

use std::path::Path;

use transit_harness::{Ran, SoftGpu};

use crate::util::{SMALL, bare, build, card_bytes, good, record, replay_stats, weights, with};

/// A recording on an oversubscribed card, a plan made from it, and runs under that plan.
struct Planned {
    gpu: SoftGpu,
    plan: std::path::PathBuf,
    card_bytes: u64,
}

fn planned(policy: &str) -> Planned {
    let card_bytes = card_bytes(141);
    let gpu = SoftGpu::new(card_bytes).unwrap();
    let trace = record(&gpu, &[]);
    let plan = build(&trace, policy, card_bytes, &[]);
    Planned {
        gpu,
        plan,
        card_bytes,
    }
}

fn replay(gpu: &SoftGpu, plan: &Path, arguments: &[&str]) -> (Ran, serde_json::Value) {
    let stats = gpu.folder().join("replay.json");
    let path = stats.to_str().unwrap().to_owned();
    let ran = gpu
        .run(&mut gpu.replay(plan, &["--stats", &path], arguments))
        .unwrap();
    good(&ran);
    assert!(
        ran.stderr().contains("transit-replay:"),
        "no exit line: {}",
        ran.stderr()
    );
    (ran, replay_stats(&stats))
}

/// Percent of ops matched, as the exit line and the JSON tell it.
fn matched(stats: &serde_json::Value) -> f64 {
    stats["ops_matched_percent"]
        .as_f64()
        .unwrap_or_else(|| panic!("no match figure: {stats}"))
}

#[test]
fn without_libcuda_the_job_reports_its_own_error() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let trace = gpu.folder().join("x.trace.zst");
    let mut command = gpu.record(&trace, &[], SMALL);
    command.env("LD_LIBRARY_PATH", "/nonexistent");
    let ran = gpu.run(&mut command).unwrap();
    assert_eq!(ran.output.status.code(), Some(1));
    assert!(
        ran.stderr().contains("trainer: no libcuda.so.1"),
        "{}",
        ran.stderr()
    );
    assert!(!trace.exists());
}

#[test]
fn an_older_driver_without_newer_calls_still_records() {
    let gpu = SoftGpu::new(1 << 30)
        .unwrap()
        .with("SOFTGPU_VERSION", "12020")
        .with("SOFTGPU_MISSING", "cuFuncGetParamInfo,cuKernelGetParamInfo,cuFuncGetName,cuMemPrefetchAsync_v2,cuMemAdvise_v2");
    let trace = gpu.folder().join("x.trace.zst");
    let ran = gpu.run(&mut gpu.record(&trace, &[], SMALL)).unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
}

#[test]
fn without_cupti_the_recorder_says_so_and_records_ops() {
    let gpu = SoftGpu::new(1 << 30).unwrap().with("SOFTGPU_NO_CUPTI", "1");
    let trace = gpu.folder().join("x.trace.zst");
    let ran = gpu.run(&mut gpu.record(&trace, &[], SMALL)).unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(
        ran.stderr().to_lowercase().contains("cupti"),
        "{}",
        ran.stderr()
    );
    let read = transit_format::trace::Trace::open(&trace).unwrap();
    assert!(!read.ops.is_empty());
}

#[test]
fn a_damaged_plan_is_named_and_the_job_runs() {
    let Planned { gpu, plan, .. } = planned("prefetch");
    let mut bytes = std::fs::read(&plan).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    let damaged = gpu.folder().join("damaged.plan");
    std::fs::write(&damaged, &bytes).unwrap();
    let ran = gpu.run(&mut gpu.replay(&damaged, &[], SMALL)).unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(ran.stderr().contains("damaged.plan"), "{}", ran.stderr());
    std::fs::write(&damaged, &bytes[..middle]).unwrap();
    let ran = gpu.run(&mut gpu.replay(&damaged, &[], SMALL)).unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
}

#[test]
fn the_plan_of_another_job_does_nothing() {
    let Planned { gpu, plan, .. } = planned("prefetch");
    let other = ["--layers", "5", "--elements", "300032", "--steps", "5"];
    let (ran, stats) = replay(&gpu, &plan, &other);
    assert_eq!(weights(&ran), bare(&other));
    assert_eq!(stats["steps_issued"].as_u64(), Some(0), "{stats}");
}

#[test]
fn shuffled_addresses_are_no_obstacle() {
    let Planned {
        plan,
        card_bytes,
        gpu,
    } = planned("prefetch");
    let shuffled = SoftGpu::new(card_bytes)
        .unwrap()
        .with("SOFTGPU_ADDRESS_SHUFFLE", "17");
    let (ran, stats) = replay(&shuffled, &plan, SMALL);
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(matched(&stats) > 50.0, "{stats}");
    assert!(stats["steps_issued"].as_u64() > Some(0), "{stats}");
    drop(gpu);
}

#[test]
fn jittered_timing_is_no_obstacle() {
    let Planned {
        plan,
        card_bytes,
        gpu,
    } = planned("prefetch");
    let jittered = SoftGpu::new(card_bytes)
        .unwrap()
        .with("SOFTGPU_JITTER", "5")
        .with("SOFTGPU_SEED", "99");
    let (ran, stats) = replay(&jittered, &plan, SMALL);
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(matched(&stats) > 50.0, "{stats}");
    drop(gpu);
}

#[test]
fn a_resumed_job_is_followed() {
    let Planned { gpu, plan, .. } = planned("prefetch");
    let checkpoint = gpu.folder().join("step2.ckpt");
    let path = checkpoint.to_str().unwrap();
    let plenty = SoftGpu::new(1 << 30).unwrap();
    let saving = with(&["--save", path, "--save-at", "2"]);
    let whole = weights(&plenty.run(&mut plenty.trainer(&saving)).unwrap());
    let (ran, stats) = replay(&gpu, &plan, &with(&["--resume", path]));
    assert_eq!(weights(&ran), whole);
    assert!(stats["steps_issued"].as_u64() > Some(0), "{stats}");
}

#[test]
fn renamed_kernels_are_matched_by_role() {
    let Planned { gpu, plan, .. } = planned("prefetch");
    let (ran, stats) = replay(&gpu, &plan, &with(&["--rename", "5"]));
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(matched(&stats) > 50.0, "{stats}");
    assert!(stats["steps_issued"].as_u64() > Some(0), "{stats}");
}

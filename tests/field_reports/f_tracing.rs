//! F. CUPTI and tracing.

use transit_format::trace::{End, Trace};

use super::{bounded, gpu, linked, text};
use crate::util::{SMALL, bare, weights};

/// Records whose end lies before their start, after CUPTI ran out of buffers.
#[test]
fn field_report_43_records_with_impossible_times_are_left_out_and_counted() {
    let gpu = gpu().with("SOFTGPU_FAULTS", "cupti-bad-times:0.2");
    let path = gpu.folder().join("x.trace.zst");
    let ran = gpu.run(&mut gpu.record(&path, &[], SMALL)).unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    let trace = Trace::open(&path).unwrap();
    assert!(trace.totals.drops.bad_times > 0, "{:?}", trace.totals);
    assert!(trace.ops.iter().all(|op| op.end_ns >= op.start_ns));
    assert!(
        ran.stderr().contains("records with impossible times"),
        "{}",
        ran.stderr()
    );
}

/// A hang in CUPTI's flush at exit, or a crash after fork or in `cuptiFinalize`.
#[test]
fn field_report_45_no_end_of_a_process_waits_for_cupti_or_finalizes_it() {
    let gpu = gpu();
    let calls = gpu.folder().join("calls.txt");
    let path = gpu.folder().join("x.trace.zst");
    let mut forking = bounded(&gpu, &transit_harness::artifacts().join("transit-record"));
    forking
        .arg("-o")
        .arg(&path)
        .arg("--")
        .arg(linked(&gpu, "forks.c"));
    let output = forking.env("SOFTGPU_CALLS", &calls).output().unwrap();
    assert_eq!(
        text(&output.stdout),
        "child 5 value 9\n",
        "{}",
        text(&output.stderr)
    );
    assert_eq!(Trace::open(&path).unwrap().end, End::Clean);
    let log = std::fs::read_to_string(&calls).unwrap();
    assert!(log.contains("cuptiActivityFlushAll"), "{log}");
    assert!(!log.contains("cuptiFinalize"), "{log}");
    // A flush that does not come back (an hour): the job ends all the same, by itself.
    let stuck = "cuptiActivityFlushAll:1:slow3600000000";
    let mut ending = bounded(&gpu, &transit_harness::artifacts().join("transit-record"));
    ending
        .arg("-o")
        .arg(&path)
        .arg("--")
        .arg(linked(&gpu, "launches.c"));
    let output = ending.env("SOFTGPU_FAULTS", stuck).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("mean 11.0\n"));
}

/// Another tool owns CUPTI, and profiles came out empty. The recorder says so, goes on with what its
/// hooks see, and keeps the reason in the trace.
#[test]
fn field_report_42_where_another_tool_owns_cupti_the_hooks_record_alone() {
    for call in ["cuptiActivityRegisterCallbacks", "cuptiActivityEnable"] {
        // MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.
        let gpu = gpu().with(
            "SOFTGPU_FAULTS",
            format!("{call}:1:39,cuptiSubscribe*:1:39"),
        );
        let path = gpu.folder().join("x.trace.zst");
        let ran = gpu.run(&mut gpu.record(&path, &[], SMALL)).unwrap();
        assert_eq!(weights(&ran), bare(SMALL), "{call}");
        assert!(
            ran.stderr().contains("no kernel times"),
            "{call}: {}",
            ran.stderr()
        );
        let trace = Trace::open(&path).unwrap();
        assert!(trace.totals.hooked_ops > 100, "{call}: {:?}", trace.totals);
        let why = trace.header.notes.iter().find(|(name, _)| name == "cupti");
        assert!(why.is_some(), "{call}: {:?}", trace.header.notes);
    }
}

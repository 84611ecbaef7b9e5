//! Others in the job's process: its own profiler, a GPU sharing preload, another shim of ours, and
//! the driver's way of loading a tool. They work as they do without us, the job's results are the
//! same, and one line says what the recording lacks.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_format::trace::Trace;
use transit_format::trace::model::OpKind;
use transit_harness::{SoftGpu, artifacts, workspace};

use crate::hazards::compile;
use crate::util::{PLENTY_BYTES, SMALL, bare, build, good, record, weights};

fn gpu() -> SoftGpu {
    SoftGpu::new(PLENTY_BYTES).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `profiled.c MODE` bare and recorded; its output must be the same. Returns what the recorder
/// said and the trace.
fn profiled(gpu: &SoftGpu, mode: &str) -> (String, Trace) {
    let (cuda, cupti) = (
        gpu.folder().join("libcuda.so.1"),
        gpu.folder().join("libcupti.so.13"),
    );
    let program = compile(gpu, "profiled.c", &[&cuda, &cupti]);
    let alone = gpu.command(&program).arg(mode).output().unwrap();
    assert!(alone.status.success(), "{}", text(&alone.stdout));
    let (recorded, trace) = recorded(gpu, &[], &program, mode);
    assert_eq!(
        text(&alone.stdout),
        text(&recorded.stdout),
        "{}",
        text(&recorded.stderr)
    );
    assert_eq!(alone.status, recorded.status);
    (text(&recorded.stderr), trace)
}

fn recorded(gpu: &SoftGpu, options: &[&str], program: &Path, mode: &str) -> (Output, Trace) {
    let trace = gpu.folder().join("n.trace.zst");
    let mut command = gpu.command(artifacts().join("transit-record"));
    command
        .arg("-o")
        .arg(&trace)
        .args(options)
        .arg("--")
        .arg(program)
        .arg(mode);
    let output = command.output().unwrap();
    let read = Trace::open(&trace).unwrap_or_else(|error| {
        panic!("{error}: {}", text(&output.stderr));
    });
    (output, read)
}

fn kernels(trace: &Trace) -> usize {
    trace
        .ops
        .iter()
        .filter(|op| op.kind == OpKind::Kernel)
        .count()
}

fn cupti_note(trace: &Trace) -> Option<&str> {
    let found = trace.header.notes.iter().find(|(name, _)| name == "cupti");
    found.map(|(_, text)| text.as_str())
}

#[test]
fn field_report_42_a_profiler_that_was_there_first_keeps_its_records() {
    let (said, trace) = profiled(&gpu(), "first");
    assert_eq!(
        said.matches("profiled uses CUPTI already").count(),
        1,
        "{said}"
    );
    assert!(cupti_note(&trace).is_some_and(|note| note.contains("profiled")));
    assert_eq!((kernels(&trace), trace.totals.cupti_ops), (9, 0));
}

#[test]
fn field_report_42_a_profiler_that_comes_later_gets_its_records() {
    for mode in ["later", "looked_up"] {
        let (said, trace) = profiled(&gpu(), mode);
        assert_eq!(
            said.matches("profiled uses CUPTI from here on").count(),
            1,
            "{mode}: {said}"
        );
        assert_eq!(kernels(&trace), 9, "{mode}");
        // What came until then says nothing about the hooks.
        assert!(trace.totals.check.is_none(), "{mode}: {:?}", trace.totals);
        assert!(said.contains("device records: n/a"), "{mode}: {said}");
        assert_eq!(
            trace.totals.cupti_ops, 4,
            "{mode}: what was ours until then is kept"
        );
    }
}

#[test]
fn field_report_42_the_subscribers_place_is_not_taken_from_others() {
    let (said, trace) = profiled(&gpu(), "subscribes_later");
    assert!(!said.contains("CUPTI already"), "{said}");
    assert_eq!(trace.totals.cupti_ops, trace.totals.hooked_ops);
    let (said, trace) = profiled(&gpu(), "subscriber");
    assert_eq!(said.matches("uses CUPTI already").count(), 1, "{said}");
    assert_eq!((kernels(&trace), trace.totals.cupti_ops), (9, 0));
}

/// The preload under the name of a known tool.
fn neighbour(gpu: &SoftGpu, name: &str) -> PathBuf {
    let library = gpu.folder().join(name);
    let mut command = Command::new("gcc");
    command.args(["-shared", "-fPIC", "-o"]).arg(&library);
    command
        .arg(workspace().join("fixtures/programs/hazards/neighbour.c"))
        .arg("-ldl");
    assert!(command.status().unwrap().success());
    library
}

#[test]
fn another_preload_is_named_and_both_do_their_work() {
    let expected = bare(SMALL);
    for (name, who) in [("libvgpu.so", "HAMi"), ("libother.so", "")] {
        let gpu = gpu();
        let (library, log) = (neighbour(&gpu, name), gpu.folder().join("seen"));
        let trace = gpu.folder().join("n.trace.zst");
        let mut command = gpu.record(&trace, &[], SMALL);
        command
            .env("LD_PRELOAD", &library)
            .env("NEIGHBOUR_LOG", &log);
        let ran = gpu.run(&mut command).unwrap();
        assert_eq!(weights(&ran), expected);
        let said = ran.stderr();
        assert_eq!(said.matches("is in this process too").count(), 1, "{said}");
        assert!(said.contains(name) && said.contains(who), "{said}");
        let trace = Trace::open(&trace).unwrap();
        assert!(
            trace.allocs.iter().any(|alloc| alloc.converted),
            "ours converts"
        );
        assert!(log.exists(), "its wrappers were never called");
    }
}

#[test]
fn a_preload_in_front_of_ours_changes_nothing() {
    let gpu = gpu();
    let library = neighbour(&gpu, "libvgpu.so");
    let shim = artifacts().join("libtransit_record.so");
    let trace = gpu.folder().join("n.trace.zst");
    let mut command = gpu.trainer(SMALL);
    command
        .env(
            "LD_PRELOAD",
            format!("{}:{}", library.display(), shim.display()),
        )
        .env("TRANSIT_TRACE", &trace);
    // Its dlsym goes past ours to the C library's, so that ours sees nothing and does nothing.
    assert_eq!(weights(&gpu.run(&mut command).unwrap()), bare(SMALL));
    assert!(!trace.exists());
}

#[test]
fn two_of_our_shims_in_one_process_are_told_and_do_no_harm() {
    let gpu = gpu();
    let plan = build(&record(&gpu, &[]), "prefetch", 1 << 30, &[]);
    let shims = ["libtransit_record.so", "libtransit_replay.so"];
    let expected = bare(SMALL);
    for order in [[0, 1], [1, 0]] {
        let list = order.map(|place| artifacts().join(shims[place]).display().to_string());
        let mut command = gpu.trainer(SMALL);
        command
            .env("LD_PRELOAD", list.join(":"))
            .env("TRANSIT_TRACE", gpu.folder().join("two.trace.zst"))
            .env("TRANSIT_PLAN", &plan);
        let ran = gpu.run(&mut command).unwrap();
        assert_eq!(weights(&ran), expected, "{}", ran.stderr());
        assert!(
            ran.stderr().contains("another of our shims"),
            "{}",
            ran.stderr()
        );
    }
}

#[test]
fn loaded_by_the_driver_a_job_is_recorded_as_it_is() {
    let gpu = gpu();
    let preloaded = Trace::open(&record(&gpu, &[])).unwrap();
    let path = gpu.folder().join("injected.trace.zst");
    let ran = gpu
        .run(&mut gpu.record(&path, &["--inject"], SMALL))
        .unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(ran.stderr().contains("complete"), "{}", ran.stderr());
    let trace = Trace::open(&path).unwrap();
    assert!(trace.header.notes.iter().any(|(name, _)| name == "way in"));
    assert_eq!(kernels(&trace), kernels(&preloaded), "{}", ran.stderr());
    assert_eq!(
        trace.totals.hooked_ops,
        trace.totals.cupti_ops,
        "{}",
        ran.stderr()
    );
    let names = |trace: &Trace| -> Vec<String> {
        trace
            .functions
            .iter()
            .map(|function| function.name.clone())
            .collect()
    };
    assert!(
        names(&trace)
            .iter()
            .all(|name| names(&preloaded).contains(name))
    );
    let timed = trace.ops.iter().filter(|op| op.kind == OpKind::Kernel);
    assert!(timed.clone().count() > 0 && timed.clone().all(|op| op.end_ns > op.start_ns));
    let sizes = |trace: &Trace| -> Vec<u64> {
        let large = trace.allocs.iter().map(|alloc| alloc.bytes);
        large.filter(|bytes| *bytes >= 2 << 20).collect()
    };
    assert_eq!(sizes(&trace), sizes(&preloaded));
    assert!(
        trace
            .allocs
            .iter()
            .all(|alloc| !alloc.converted && alloc.caller.is_empty())
    );
    assert!(trace.migrations.is_empty());
}

#[test]
fn preloaded_and_loaded_by_the_driver_it_records_once() {
    let gpu = gpu();
    let once = Trace::open(&record(&gpu, &[])).unwrap();
    let shim = artifacts().join("libtransit_record.so");
    let path = gpu.folder().join("both.trace.zst");
    let mut command = gpu.record(&path, &[], SMALL);
    let ran = gpu
        .run(command.env("CUDA_INJECTION64_PATH", &shim))
        .unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    let both = Trace::open(&path).unwrap();
    assert_eq!(both.ops.len(), once.ops.len());
    assert_eq!(both.allocs.len(), once.allocs.len());
    assert!(!both.header.notes.iter().any(|(name, _)| name == "way in"));
    assert_eq!(
        ran.stderr().matches("hooks have a driver function").count(),
        1,
        "{}",
        ran.stderr()
    );
}

#[test]
fn loaded_by_the_driver_without_cupti_it_says_so_and_the_job_runs() {
    let gpu = gpu().with("SOFTGPU_NO_CUPTI", "1");
    let path = gpu.folder().join("injected.trace.zst");
    let ran = gpu
        .run(&mut gpu.record(&path, &["--inject"], SMALL))
        .unwrap();
    good(&ran);
    assert_eq!(weights(&ran), bare(SMALL));
    assert!(
        ran.stderr().contains("nothing can be recorded"),
        "{}",
        ran.stderr()
    );
    assert!(!path.exists());
}

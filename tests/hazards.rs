//! Small C programs, one hazard each, run bare and under each shim on the software GPU: same
//! output, same exit status.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_harness::{SoftGpu, artifacts, workspace};

use crate::util::{build, record};

fn source(name: &str) -> PathBuf {
    workspace().join("fixtures/programs/hazards").join(name)
}

/// Compiles a hazard; `more` are further arguments (libraries to link).
pub(crate) fn compile(gpu: &SoftGpu, name: &str, more: &[&Path]) -> PathBuf {
    compile_at(gpu, &source(name), more)
}

/// Compiles a program that lies anywhere.
pub(crate) fn compile_at(gpu: &SoftGpu, source: &Path, more: &[&Path]) -> PathBuf {
    let out = gpu.folder().join(source.file_stem().unwrap());
    let mut command = Command::new("gcc");
    command
        .args(["-O1", "-o"])
        .arg(&out)
        .arg(source)
        .args(more)
        .args(["-ldl", "-lpthread", "-lm"]);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    out
}

/// Runs a program bare, recorded and replayed; the same output and status each time. Returns the
/// trace of the recorded run.
pub(crate) fn same_everywhere(gpu: &SoftGpu, program: &Path) -> (Output, PathBuf) {
    let bare = gpu.command(program).output().unwrap();
    let trace = gpu.folder().join("hazard.trace.zst");
    let mut recorded = gpu.command(artifacts().join("transit-record"));
    let recorded = recorded
        .arg("-o")
        .arg(&trace)
        .arg("--")
        .arg(program)
        .output()
        .unwrap();
    let plan = build(&record(gpu, &[]), "prefetch", 1 << 30, &[]);
    let mut replayed = gpu.command(artifacts().join("transit-replay"));
    let replayed = replayed
        .arg("--plan")
        .arg(plan)
        .arg("--")
        .arg(program)
        .output()
        .unwrap();
    for (name, run) in [("recorded", &recorded), ("replayed", &replayed)] {
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(bare.status, run.status, "{name}: {text}");
        assert_eq!(
            String::from_utf8_lossy(&bare.stdout),
            String::from_utf8_lossy(&run.stdout),
            "{name}: {text}"
        );
    }
    (bare, trace)
}

#[test]
fn every_way_to_launch_is_seen() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "launches.c", &[&cuda]);
    let (bare, trace) = same_everywhere(&gpu, &program);
    let text = String::from_utf8_lossy(&bare.stdout).into_owned();
    assert!(text.starts_with("mean 11.0\n"), "{text}");
    let read = transit_format::trace::Trace::open(&trace).unwrap();
    use transit_format::trace::model::OpKind;
    let count = |kind| read.ops.iter().filter(|op| op.kind == kind).count();
    // 8 direct launches, 2 graph launches, a memset, a device copy and the copy to the host.
    assert_eq!(count(OpKind::Kernel), 8, "{:?}", read.ops);
    assert_eq!(count(OpKind::Graph), 2);
    assert_eq!(count(OpKind::Memset), 1);
    assert_eq!(count(OpKind::Memcpy), 2);
    // Graph launches carry the pointers of the nodes captured in them.
    for op in read.ops.iter().filter(|op| op.kind != OpKind::Memcpy) {
        assert!(!read.pointers_of(op).is_empty(), "{op:?}");
    }
    assert_eq!(
        read.totals.hooked_ops, read.totals.cupti_ops,
        "{:?}",
        read.totals
    );
}

/// The driver functions of launches, copies and memsets that a program comes to call, sorted.
fn work_called(gpu: &SoftGpu, program: &Path, shim: &str) -> Vec<String> {
    const WORK: &[&str] = &["cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"];
    let log = gpu.folder().join("calls.txt");
    let mut command = gpu.command(program);
    if !shim.is_empty() {
        command.env("LD_PRELOAD", artifacts().join(shim));
    }
    let output = command.env("SOFTGPU_CALLS", &log).output().unwrap();
    assert!(output.status.success(), "{shim}");
    let text = std::fs::read_to_string(log).unwrap();
    let names = text.lines().filter_map(|line| line.split('(').next());
    let work = names.filter(|name| WORK.iter().any(|start| name.starts_with(start)));
    let mut work: Vec<String> = work.map(str::to_owned).collect();
    work.sort();
    work
}

/// A cooperative launch passed on as a plain one, or a per-thread call as a legacy one, would still
/// compute the right numbers here, and be wrong on a GPU.
#[test]
fn every_launch_and_copy_ends_in_the_function_that_was_called() {
    for source in ["launches.c", "copies.c", "per_thread.c"] {
        let gpu = SoftGpu::new(1 << 30).unwrap();
        let program = compile(&gpu, source, &[&gpu.folder().join("libcuda.so.1")]);
        let bare = work_called(&gpu, &program, "");
        assert!(bare.len() > 5, "{source}: {bare:?}");
        for shim in ["libtransit_record.so", "libtransit_replay.so"] {
            assert_eq!(work_called(&gpu, &program, shim), bare, "{source}: {shim}");
        }
    }
}

#[test]
fn a_library_that_asks_for_the_next_symbol_gets_it() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let wrapper = gpu.folder().join("libwrapper.so");
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&wrapper)
        .arg(source("wrapper.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(built.success());
    let program = compile(&gpu, "next.c", &[&wrapper]);
    for shim in ["", "libtransit_record.so", "libtransit_replay.so"] {
        let mut command = gpu.command(&program);
        command.env("HAZARD", "seen");
        if !shim.is_empty() {
            command.env("LD_PRELOAD", artifacts().join(shim));
        }
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "seen\n", "{shim}");
    }
}

#[test]
fn a_process_without_cuda_finds_none() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let program = compile(&gpu, "probe.c", &[]);
    let bare = Command::new(&program).output().unwrap();
    for shim in ["libtransit_record.so", "libtransit_replay.so"] {
        let loaded = Command::new(&program)
            .env("LD_PRELOAD", artifacts().join(shim))
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&bare.stdout),
            String::from_utf8_lossy(&loaded.stdout),
            "{shim}"
        );
    }
}

#[test]
fn a_forked_child_leaves_nothing_behind() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "forks.c", &[&cuda]);
    let (bare, trace) = same_everywhere(&gpu, &program);
    assert_eq!(String::from_utf8_lossy(&bare.stdout), "child 5 value 9\n");
    let read = transit_format::trace::Trace::open(&trace).unwrap();
    assert_eq!(
        read.end,
        transit_format::trace::End::Clean,
        "the child closed the parent's file"
    );
}

//! Small C programs, one kind of trouble each, run bare, recorded, recorded on an emulated card and
//! replayed under a plan made of that recording: the same output and status each time, and never a
//! hang.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_harness::{SoftGpu, artifacts};

use crate::hazards::compile;
use crate::util::{build, record};

/// Longest run of one program; a run that takes longer hangs.
const MOST_SECONDS: &str = "120";

/// A command that is killed when it hangs.
pub(crate) fn bounded(gpu: &SoftGpu, program: &Path) -> Command {
    let mut command = gpu.command("timeout");
    command
        .args(["--foreground", "-s", "KILL", MOST_SECONDS])
        .arg(program);
    command
}

/// A plan from the recording on the emulated card; a job it cannot be made for gets another's.
pub(crate) fn plan_of(gpu: &SoftGpu, trace: &Path) -> PathBuf {
    let plan = trace.with_file_name("own.plan");
    let arguments: [&dyn AsRef<std::ffi::OsStr>; 8] = [
        &"build",
        &trace,
        &"--policy",
        &"prefetch",
        &"--hbm",
        &"8MiB",
        &"--emulate",
        &"-o",
    ];
    let mut all = arguments.to_vec();
    all.push(&plan);
    let made = trace.exists() && transit_harness::plan(&all).unwrap().status.success();
    if made {
        plan
    } else {
        build(&record(gpu, &[]), "prefetch", 1 << 30, &[])
    }
}

pub(crate) fn assert_same(bare: &Output, run: &Output, name: &str) {
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(
        String::from_utf8_lossy(&bare.stdout),
        String::from_utf8_lossy(&run.stdout),
        "{name}: {text}"
    );
    assert_eq!(bare.status, run.status, "{name}: {text}");
}

/// Runs a program in all four ways; returns what it printed.
pub(crate) fn survives_on(gpu: &SoftGpu, program: &Path, arguments: &[&str]) -> String {
    let bare = bounded(gpu, program).args(arguments).output().unwrap();
    let launcher = |name: &str, options: &[&dyn AsRef<std::ffi::OsStr>]| {
        let mut command = bounded(gpu, &artifacts().join(name));
        for option in options {
            command.arg(option);
        }
        command.arg("--").arg(program).args(arguments);
        command.output().unwrap()
    };
    let trace = gpu.folder().join("storm.trace.zst");
    let run = launcher("transit-record", &[&"-o", &trace]);
    assert_same(&bare, &run, "recorded");
    let card = gpu.folder().join("card.trace.zst");
    let run = launcher("transit-record", &[&"--hbm-limit", &"8MiB", &"-o", &card]);
    assert_same(&bare, &run, "recorded on an emulated card");
    let plan = plan_of(gpu, &card);
    let run = launcher("transit-replay", &[&"--plan", &plan]);
    assert_same(&bare, &run, "replayed");
    String::from_utf8_lossy(&bare.stdout).into_owned()
}

pub(crate) fn survives(source: &str, arguments: &[&str]) -> String {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, source, &[&cuda]);
    survives_on(&gpu, &program, arguments)
}

#[test]
fn threads_on_several_streams_and_contexts() {
    let out = survives("threads.c", &[]);
    assert!(out.ends_with("thread 3: 40.0 40.0\n"), "{out}");
}

#[test]
fn per_thread_default_streams() {
    assert_eq!(survives("per_thread.c", &[]), "20.0 40.0 60.0\n");
}

#[test]
fn launches_racing_with_frees() {
    assert_eq!(survives("races.c", &[]), "150.0 150.0\n");
}

#[test]
fn every_way_to_end_with_work_under_way() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "ends.c", &[&cuda]);
    for way in [
        "return",
        "atexit",
        "atexit-after",
        "exit-thread",
        "busy",
        "term",
        "int",
        "_exit",
        "abort",
        "segv",
        "segv-handler",
        "quick",
        "exec",
        "pthread",
    ] {
        let out = survives_on(&gpu, &program, &[way]);
        assert!(out.starts_with("before 1.0\n"), "{way}: {out}");
    }
}

#[test]
fn ends_children_and_changes_past_the_c_library() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "odd_ends.c", &[&cuda]);
    for way in [
        "early-threads",
        "kill-busy",
        "exec-busy",
        "fault-in-handler",
        "cuda-in-fault",
        "cuda-in-handler",
        "vfork",
        "clone-vm",
        "raw-fork",
        "other-user",
        "other-root",
        "waits",
        "full",
        "full-ignored",
        "full-handled",
        "full-blocked",
    ] {
        let out = survives_on(&gpu, &program, &[way]);
        assert!(out.starts_with("before 1.0\n"), "{way}: {out}");
    }
}

#[test]
fn children_of_every_kind() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "children.c", &[&cuda]);
    for way in ["before", "exec", "spawn", "system", "touch", "daemon"] {
        let out = survives_on(&gpu, &program, &[way]);
        assert!(out.contains("parent 2.0\n"), "{way}: {out}");
    }
}

#[test]
fn the_driver_loaded_in_every_way() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let program = compile(&gpu, "loads.c", &[]);
    for way in ["local", "global", "deep", "again", "close"] {
        let out = survives_on(&gpu, &program, &[way]);
        // Before the driver is loaded nobody finds it, as the next symbol or as any.
        assert!(
            out.starts_with("before: default 0 next 0\nerror 1\n"),
            "{way}: {out}"
        );
        assert!(out.contains(&format!("{way}: 9\n")), "{way}: {out}");
    }
}

#[test]
fn resolvers_with_odd_arguments() {
    survives("resolver.c", &[]);
}

#[test]
fn modules_whose_kernels_share_names_and_handles() {
    survives("modules.c", &[]);
}

#[test]
fn pointers_in_odd_places() {
    survives("arguments.c", &[]);
}

/// A capture is ruined by driver calls of other threads, ours among them: what settles or issues
/// steps must be over before one begins.
#[test]
fn captures_in_every_mode_beside_a_busy_thread() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "captures.c", &[&cuda]);
    for mode in ["0", "1", "2"] {
        assert_eq!(survives_on(&gpu, &program, &[mode]), "72.0 other 1.0\n");
    }
}

#[test]
fn captures_that_the_job_ruins_itself() {
    let out = survives("ruined.c", &[]);
    assert!(out.ends_with("3.0\n"), "{out}");
}

/// Pool memory freed by `cuMemFree` is given back in the books: free memory does not shrink for
/// ever.
#[test]
fn odd_requests_and_odd_frees() {
    let out = survives("memory.c", &[]);
    assert!(out.contains("free back 1"), "{out}");
}

#[test]
fn an_allocator_that_runs_out_frees_its_cache_and_goes_on() {
    let gpu = SoftGpu::new(1 << 30)
        .unwrap()
        .with("TRANSIT_CEILING_BYTES", (900_u64 << 20).to_string());
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "exhaust.c", &[&cuda]);
    let out = survives_on(&gpu, &program, &[]);
    assert!(
        out.contains("turn 3: result 2 kept 1 less than one more free 1"),
        "{out}"
    );
}

/// Memory and streams of a destroyed context are gone from our books, its addresses and handles are
/// given out again.
#[test]
fn contexts_that_end_with_memory_in_them() {
    let out = survives("contexts.c", &[]);
    assert!(
        out.contains("given back 1\n") && out.ends_with("60: 9.0\n"),
        "{out}"
    );
}

#[test]
fn copies_and_memsets_of_every_form() {
    survives("copies.c", &[]);
}

#[test]
fn streams_by_the_thousand() {
    survives("streams.c", &[]);
}

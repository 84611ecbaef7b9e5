//! What users of CUDA shims and managed-memory training ran into elsewhere, a test for each report,
//! named by its number: the same fault is put in, and the job must not notice. Letters as in the
//! collection of reports: A loading, B sharing, C memory, D managed memory, E graphs, F tracing,
//! G bindings. The programs are in `fixtures/programs/reports`.

mod a_loading;
mod b_sharing;
mod c_memory;
mod d_managed;
mod e_graphs;
mod f_tracing;
mod g_bindings;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_format::trace::Trace;
use transit_harness::{SoftGpu, artifacts, workspace};

use crate::hazards::compile_at;
use crate::util::PLENTY_BYTES;

/// A program that takes longer hangs.
const MOST_SECONDS: &str = "60";

const SHIMS: [&str; 2] = ["libtransit_record.so", "libtransit_replay.so"];

fn gpu() -> SoftGpu {
    SoftGpu::new(PLENTY_BYTES).unwrap()
}

fn source(name: &str) -> PathBuf {
    let programs = workspace().join("fixtures/programs");
    let report = programs.join("reports").join(name);
    if report.exists() {
        report
    } else {
        programs.join("hazards").join(name)
    }
}

/// A program linked against the software driver.
fn linked(gpu: &SoftGpu, name: &str) -> PathBuf {
    compile_at(gpu, &source(name), &[&gpu.folder().join("libcuda.so.1")])
}

/// A program that finds the driver by itself.
fn compiled(gpu: &SoftGpu, name: &str) -> PathBuf {
    compile_at(gpu, &source(name), &[])
}

/// A library of the same source as a program, built with `-DLIBRARY` under `name`.
fn library(gpu: &SoftGpu, source_name: &str, name: &str) -> PathBuf {
    let out = gpu.folder().join(name);
    let built = Command::new("gcc")
        .args(["-O1", "-shared", "-fPIC", "-DLIBRARY", "-o"])
        .arg(&out)
        .arg(source(source_name))
        .arg(gpu.folder().join("libcuda.so.1"))
        .args(["-ldl", "-lpthread"])
        .status()
        .unwrap();
    assert!(built.success());
    out
}

/// A command that is killed when it hangs.
fn bounded(gpu: &SoftGpu, program: &Path) -> Command {
    let mut command = gpu.command("timeout");
    command.args(["-s", "KILL", MOST_SECONDS]).arg(program);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program's runs: bare, recorded, and replayed under a plan of another job.
struct Runs {
    bare: Output,
    recorded: Output,
    replayed: Output,
    trace: PathBuf,
}

impl Runs {
    fn stdout(&self) -> String {
        text(&self.bare.stdout)
    }

    fn trace(&self) -> Trace {
        Trace::open(&self.trace).unwrap()
    }
}

/// Runs a program in all three ways without asking that they agree.
fn each_way(gpu: &SoftGpu, program: &Path, arguments: &[&str], options: &[&str]) -> Runs {
    let bare = bounded(gpu, program).args(arguments).output().unwrap();
    let trace = gpu.folder().join("report.trace.zst");
    let launched = |launcher: &str, first: &[&std::ffi::OsStr]| {
        let mut command = bounded(gpu, &artifacts().join(launcher));
        command.args(first).args(options).arg("--").arg(program);
        command.args(arguments).output().unwrap()
    };
    let recorded = launched("transit-record", &["-o".as_ref(), trace.as_ref()]);
    let plan = workspace().join("fixtures/formats/v1.plan");
    let replayed = launched("transit-replay", &["--plan".as_ref(), plan.as_ref()]);
    Runs {
        bare,
        recorded,
        replayed,
        trace,
    }
}

/// Runs a program in all three ways: the same output and status each time.
fn unchanged(gpu: &SoftGpu, program: &Path, arguments: &[&str]) -> Runs {
    let runs = each_way(gpu, program, arguments, &[]);
    for run in [&runs.recorded, &runs.replayed] {
        let messages = text(&run.stderr);
        assert_eq!(text(&runs.bare.stdout), text(&run.stdout), "{messages}");
        assert_eq!(runs.bare.status, run.status, "{messages}");
    }
    runs
}

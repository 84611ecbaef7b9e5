//! Launchers and shims given names that are no files, and nobody to read their messages: the job
//! runs to its end with its own exit status, and what stood at those names still stands there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use transit_harness::{SoftGpu, artifacts};

use crate::util::{PLENTY_BYTES, SMALL, build, record};

fn pipe(gpu: &SoftGpu, name: &str) -> PathBuf {
    let path = gpu.folder().join(name);
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

/// Runs it under a limit, so that a job that waits for a pipe fails the test and does not hang it.
fn bounded(gpu: &SoftGpu, launcher: &str, options: &[&Path]) -> Output {
    let mut command = gpu.command("timeout");
    command
        .args(["60", "env"])
        .arg(artifacts().join(launcher))
        .args(options)
        .arg("--")
        .arg(artifacts().join("trainer"))
        .args(SMALL);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_plan_trace_or_statistics_file_that_is_a_pipe_never_holds_the_job_up() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let plan = build(&record(&gpu, &[]), "base", PLENTY_BYTES, &[]);
    let fifo = pipe(&gpu, "fifo");
    let option = Path::new;
    let cases: [&[&Path]; 3] = [
        &[option("--plan"), &fifo],
        &[option("--plan"), &plan, option("--trace"), &fifo],
        &[option("--plan"), &plan, option("--stats"), &fifo],
    ];
    for options in cases {
        let output = bounded(&gpu, "transit-replay", options);
        assert!(output.status.success(), "{options:?}: {}", text(&output));
        assert!(
            text(&output).contains("pipe"),
            "{options:?}: {}",
            text(&output)
        );
    }
    assert!(!fifo.metadata().unwrap().is_file(), "the pipe was replaced");
    // The recorder is asked for nothing but its trace: it says so before anything runs.
    let output = bounded(&gpu, "transit-record", &[option("-o"), &fifo]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output));
    assert!(text(&output).contains("pipe"), "{}", text(&output));
}

#[test]
fn messages_that_nobody_can_read_change_no_exit_status() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let trace = gpu.folder().join("x.trace.zst");
    let cases = [
        ("transit-record", "-o", trace.clone()),
        ("transit-replay", "--plan", gpu.folder().join("none.plan")),
    ];
    for (launcher, option, path) in cases {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let script = "\"$@\"; exit 7";
        let status = gpu
            .command(artifacts().join(launcher))
            .arg(option)
            .arg(path)
            .args(["--", "sh", "-c", script, "sh"])
            .arg(artifacts().join("trainer"))
            .args(SMALL)
            .stdout(Stdio::null())
            .stderr(full)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(7), "{launcher}");
    }
}

/// A full disk: the job runs, one line says why there is no trace, and nothing is left that would
/// be taken for one.
#[test]
fn a_trace_that_cannot_be_written_is_not_announced() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let trace = gpu.folder().join("full.trace.zst");
    let mut command = gpu.command("sh");
    command
        .args(["-c", "ulimit -f 0; exec \"$@\"", "sh"])
        .arg(artifacts().join("transit-record"))
        .arg("-o")
        .arg(&trace)
        .arg("--")
        .arg(artifacts().join("trainer"))
        .args(SMALL);
    // The statistics of the software GPU are a file as well.
    let ran = command.env_remove("SOFTGPU_STATS").output().unwrap();
    let said = text(&ran);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("nothing is recorded: cannot write"), "{said}");
    assert!(!said.contains("wrote"), "{said}");
    assert!(said.contains("no trace: "), "{said}");
    assert!(!trace.exists(), "{said}");
}

/// With little address space the ledger has no room for its fast table: the job runs all the same, its
/// ops are recorded with their pointers, and it is said once why launches take longer.
#[test]
fn a_job_with_little_address_space_is_recorded_all_the_same() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let traces = [(4_u64 << 20, 0), (1_200 << 10, 1)].map(|(most_kib, complaints)| {
        let trace = gpu.folder().join("narrow.trace.zst");
        let mut command = gpu.command("sh");
        command
            .args(["-c", "ulimit -v $0; exec \"$@\""])
            .arg(most_kib.to_string())
            .arg(artifacts().join("transit-record"))
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .arg(artifacts().join("trainer"))
            .args(SMALL);
        let ran = command.output().unwrap();
        let said = text(&ran);
        assert!(ran.status.success(), "{most_kib}: {said}");
        assert_eq!(
            said.matches("little address space").count(),
            complaints,
            "{most_kib}: {said}"
        );
        let trace = transit_format::trace::Trace::open(&trace).unwrap();
        let pointers = |op| trace.pointers_of(op).len();
        trace.ops.iter().map(pointers).collect::<Vec<_>>()
    });
    assert!(traces[0].iter().any(|pointers| *pointers > 0));
    assert!(traces.iter().all(|trace| *trace == traces[0]));
}

//! What a launcher owes the job: its exit status, its death, its arguments, and no litter.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};

use transit_harness::{SoftGpu, artifacts};

use crate::util::{PLENTY_BYTES, build, inspect, record, with};

/// Both launchers with what must stand before `--`.
fn each(gpu: &SoftGpu, mut check: impl FnMut(&str, &dyn Fn(&[&str]) -> Output)) {
    let trace = record(gpu, &[]);
    let plan = build(&trace, "base", PLENTY_BYTES, &[]);
    let out = gpu.folder().join("x.trace.zst");
    check("transit-record", &|job| {
        let mut command = gpu.command(artifacts().join("transit-record"));
        command
            .arg("-o")
            .arg(&out)
            .arg("--")
            .args(job)
            .output()
            .unwrap()
    });
    check("transit-replay", &|job| {
        let mut command = gpu.command(artifacts().join("transit-replay"));
        command
            .arg("--plan")
            .arg(&plan)
            .arg("--trace")
            .arg(&out)
            .arg("--")
            .args(job);
        command.output().unwrap()
    });
}

#[test]
fn a_job_that_never_touches_the_gpu_leaves_no_trace_file() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    each(&gpu, |name, run| {
        let output = run(&["true"]);
        assert!(output.status.success(), "{name}: {output:?}");
        let litter: Vec<_> = std::fs::read_dir(gpu.folder())
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|file| file.starts_with("x."))
            .collect();
        assert!(litter.is_empty(), "{name} left {litter:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = said.contains("no trace: ") && said.contains("next: transit-record doctor");
        assert_eq!(told, name == "transit-record", "{said}");
    });
}

#[test]
fn the_exit_status_is_the_jobs() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    each(&gpu, |name, run| {
        assert_eq!(
            run(&["sh", "-c", "exit 7"]).status.code(),
            Some(7),
            "{name}"
        );
        assert_eq!(
            run(&["no-such-program-anywhere"]).status.code(),
            Some(127),
            "{name}"
        );
        assert_eq!(run(&["/"]).status.code(), Some(126), "{name}");
    });
}

#[test]
fn a_job_killed_by_a_signal_dies_by_that_signal() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    each(&gpu, |name, run| {
        for (text, signal) in [
            ("TERM", libc::SIGTERM),
            ("SEGV", libc::SIGSEGV),
            ("KILL", libc::SIGKILL),
        ] {
            let status = run(&["sh", "-c", &format!("kill -{text} $$")]).status;
            assert_eq!(status.signal(), Some(signal), "{name}: {status}");
        }
    });
}

#[test]
fn arguments_after_the_dashes_are_untouched() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    each(&gpu, |name, run| {
        let odd = ["-o", "--", "a b", "", "--plan=x", "{rank}", "\u{e9}"];
        let script = "for a in \"$@\"; do printf '<%s>' \"$a\"; done";
        let mut job = vec!["sh", "-c", script, "sh"];
        job.extend(odd);
        let text = String::from_utf8(run(&job).stdout).unwrap();
        let want: String = odd.iter().map(|a| format!("<{a}>")).collect();
        assert_eq!(text, want, "{name}");
    });
}

#[test]
fn sigterm_to_the_launcher_reaches_the_job() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let mut command = gpu.command(artifacts().join("transit-record"));
    command
        .arg("-o")
        .arg(gpu.folder().join("x.trace.zst"))
        .arg("--");
    command.args([
        "sh",
        "-c",
        "trap 'exit 9' TERM; kill -TERM $PPID; while :; do read x; done",
    ]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    // The job itself signals the launcher, so there is no race to win here; its endless read keeps
    // it alive until the signal comes back.
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(9), "{status}");
}

#[test]
fn a_killed_jobs_trace_is_readable() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let trace = gpu.folder().join("killed.trace.zst");
    let ran = gpu
        .run(&mut gpu.record(&trace, &[], &with(&["--kill-at", "6"])))
        .unwrap();
    assert_eq!(
        ran.output.status.signal(),
        Some(libc::SIGKILL),
        "{}",
        ran.stderr()
    );
    let facts = inspect(&trace);
    assert!(
        facts["state"].to_string().to_lowercase().contains("cut"),
        "{facts}"
    );
    assert!(facts.to_string().contains("\"ops\""), "{facts}");
    let zstd = Command::new("zstd").arg("-t").arg(&trace).output().unwrap();
    let text = String::from_utf8_lossy(&zstd.stderr).into_owned();
    assert!(
        zstd.status.success() || text.contains("premature"),
        "{text}"
    );
}

#[test]
fn a_closed_trace_passes_zstd_and_the_self_check() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let trace = record(&gpu, &[]);
    let zstd = Command::new("zstd")
        .args(["-q", "-t"])
        .arg(&trace)
        .status()
        .unwrap();
    assert!(zstd.success());
    let read = transit_format::trace::Trace::open(&trace).unwrap();
    assert_eq!(read.end, transit_format::trace::End::Clean);
    assert_eq!(
        read.totals.hooked_ops, read.totals.cupti_ops,
        "{:?}",
        read.totals
    );
    assert_eq!(
        read.totals.drops,
        transit_format::trace::model::Drops::default()
    );
    assert!(read.ops.iter().filter(|op| op.pointers > 0).count() * 10 > read.ops.len() * 8);
}

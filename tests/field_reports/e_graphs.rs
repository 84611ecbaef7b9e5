//! E. CUDA graphs.

use std::process::Command;

use transit_harness::{SoftGpu, artifacts};

use super::{bounded, gpu, linked, text};

/// Driver calls of a helper's, made while somebody captured, failed the capture or hung it.
#[test]
fn field_report_39_no_call_of_ours_falls_into_a_capture() {
    let gpu = gpu();
    let program = linked(&gpu, "launches.c");
    let bare = captured(&gpu, bounded(&gpu, &program));
    assert!(bare.len() == 2, "{bare:?}");
    let mut recorder = bounded(&gpu, &artifacts().join("transit-record"));
    let trace = gpu.folder().join("x.trace.zst");
    recorder
        .args(["--hbm-limit", "8MiB", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program);
    // Questions that are allowed in any mode are none of the calls that ruin a capture.
    let ruins = |call: &String| {
        [
            "cuMem",
            "cuLaunch",
            "cuEventRecord",
            "cuStreamSynchronize",
            "cuCtxSynchronize",
        ]
        .iter()
        .any(|start| call.starts_with(start))
    };
    let under_us: Vec<String> = captured(&gpu, recorder).into_iter().filter(ruins).collect();
    assert_eq!(under_us, bare);
    // A job with a second, busy thread, in each capture mode.
    let busy = linked(&gpu, "captures.c");
    for mode in ["0", "1", "2"] {
        let mut command = bounded(&gpu, &artifacts().join("transit-record"));
        command
            .args(["--hbm-limit", "8MiB", "-o"])
            .arg(&trace)
            .arg("--");
        let output = command.arg(&busy).arg(mode).output().unwrap();
        assert_eq!(
            text(&output.stdout),
            "72.0 other 1.0\n",
            "{}",
            text(&output.stderr)
        );
    }
}

/// The driver calls between the beginning and the end of the first capture.
fn captured(gpu: &SoftGpu, mut command: Command) -> Vec<String> {
    let calls = gpu.folder().join("calls.txt");
    let output = command.env("SOFTGPU_CALLS", &calls).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let log = std::fs::read_to_string(&calls).unwrap();
    let names = log
        .lines()
        .map(|line| line.split('(').next().unwrap_or_default());
    let within = names
        .skip_while(|name| !name.starts_with("cuStreamBeginCapture"))
        .skip(1);
    let within = within.take_while(|name| !name.starts_with("cuStreamEndCapture"));
    within.map(str::to_owned).collect()
}

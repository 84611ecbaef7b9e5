//! G. Bindings.

use std::process::Command;

use transit_harness::artifacts;

use super::{bounded, gpu, source, text};
use crate::util::{SMALL, bare};

/// "CUDA driver is a stub library": `dlopen` of `libcuda.so` found the toolkit's stand-in.
#[test]
fn field_report_48_only_the_drivers_own_name_is_ever_opened() {
    let gpu = gpu();
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(gpu.folder().join("libcuda.so"))
        .arg(source("stub.c"))
        .status()
        .unwrap();
    assert!(built.success());
    let trainer = artifacts().join("trainer");
    let trace = gpu.folder().join("x.trace.zst");
    let mut recorder = bounded(&gpu, &artifacts().join("transit-record"));
    recorder
        .arg("-o")
        .arg(&trace)
        .arg("--")
        .arg(&trainer)
        .args(SMALL);
    let mut replayer = bounded(&gpu, &trainer);
    replayer
        .args(SMALL)
        .env("LD_PRELOAD", artifacts().join("libtransit_replay.so"));
    for mut command in [recorder, replayer] {
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert!(!said.contains("STUB LIBRARY LOADED"), "{said}");
        assert!(text(&output.stdout).contains(&bare(SMALL)), "{said}");
    }
}

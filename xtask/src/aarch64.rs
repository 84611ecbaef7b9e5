//! `cargo xtask aarch64`: builds shims, launchers and the software GPU for aarch64 and checks the
//! files; with `qemu-aarch64` installed, runs the trainer recorded on the software GPU too. Needs
//! what a machine may lack, and says how to get it:
//!
//!     rustup target add aarch64-unknown-linux-gnu
//!     apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use transit_harness::workspace;

use crate::build::run as run_command;
use crate::packed;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Where Debian's cross packages keep the C library.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";
const SHIMS: [(&str, &str); 2] = [
    ("libtransit_record.so", "transit-record/shim/exports.txt"),
    ("libtransit_replay.so", "transit-replay/shim/exports.txt"),
];

/// Builds and checks.
pub(crate) fn run() -> Result<()> {
    let found = |program: &str| Command::new(program).arg("--version").output().is_ok();
    ensure!(
        found(LINKER),
        "{LINKER} is not installed: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    );
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--target", TARGET]);
    for package in [
        "soft-gpu",
        "transit-programs",
        "transit-record-shim",
        "transit-replay-shim",
        "transit-record",
        "transit-replay",
        "transit-plan",
    ] {
        command.args(["--package", package]);
    }
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    command.env("CC_aarch64_unknown_linux_gnu", LINKER);
    run_command(&mut command)
        .with_context(|| format!("is the target there? rustup target add {TARGET}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace().join("target"));
    let built = target.join(TARGET).join("debug");
    for (library, list) in SHIMS {
        let path = built.join(library);
        packed::check_files(std::iter::once(path.as_path()), None)?;
        packed::check_exports(&path, &workspace().join(list))?;
    }
    println!("built for {TARGET}: {}", built.display());
    if !found("qemu-aarch64") {
        println!("not run: qemu-aarch64 is not installed (apt-get install qemu-user)");
        return Ok(());
    }
    recorded_run(&built)
}

/// The trainer bare and with the recorder preloaded, under qemu on the software GPU: same weights,
/// and a trace.
fn recorded_run(built: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in ["libcuda.so.1", "libcupti.so.13"] {
        std::os::unix::fs::symlink(built.join("libsoft_gpu.so"), folder.path().join(name))?;
    }
    let trace = folder.path().join("a.trace.zst");
    let run = |shim: Option<&Path>| {
        let mut command = Command::new("qemu-aarch64");
        command.args(["-L", SYSROOT, "-E"]);
        command.arg(format!("LD_LIBRARY_PATH={}", folder.path().display()));
        command
            .arg("-E")
            .arg(format!("TRANSIT_TRACE={}", trace.display()));
        if let Some(shim) = shim {
            command
                .arg("-E")
                .arg(format!("LD_PRELOAD={}", shim.display()));
        }
        command.arg(built.join("trainer"));
        command.args(["--layers", "2", "--elements", "262144", "--steps", "4"]);
        command.output()
    };
    let bare = run(None)?;
    let recorded = run(Some(&built.join("libtransit_record.so")))?;
    let text = String::from_utf8_lossy(&recorded.stderr).into_owned();
    ensure!(
        bare.status.success(),
        "the trainer under qemu: {}",
        bare.status
    );
    ensure!(
        recorded.stdout == bare.stdout && recorded.status == bare.status,
        "the recorded trainer differs under qemu: {text}"
    );
    ensure!(trace.exists(), "no trace was written under qemu: {text}");
    println!(
        "recorded under qemu on the software GPU with the same result: {}",
        text.trim()
    );
    Ok(())
}

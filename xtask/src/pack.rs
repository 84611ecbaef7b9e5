//! `cargo xtask pack DIR`: a stripped bundle of launchers, shims and planner that runs without
//! Rust. Shims are loaded into other people's processes, so they must load on old systems: the
//! bundle is linked against glibc 2.28 with zig's linker (`pip install ziglang`) where that is
//! installed, and against this machine's glibc otherwise; either way it says which floor it has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::build::run as run_command;

/// Target triple of the bundle.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The glibc every supported system has (RHEL 8, Debian 10, Ubuntu 20.04).
const FLOOR: &str = "2.28";
/// Programs of the bundle.
const PROGRAMS: &[&str] = &["transit-record", "transit-replay", "transit-plan"];
/// Libraries of the bundle.
const LIBRARIES: &[&str] = &["libtransit_record.so", "libtransit_replay.so"];
/// Files of the evidence run on a GPU.
const GPU_FILES: &[&str] = &["train.py", "evidence.py", "selftest.cu", "README.md"];

const RUN_SH: &str = "#!/bin/sh
# Puts the bundle's programs on PATH and runs what follows: ./run.sh transit-record -o x.trace.zst -- job
here=$(CDPATH= cd -- \"$(dirname -- \"$0\")\" && pwd)
export PATH=\"$here/bin:$PATH\" TRANSIT_SHIM_DIR=\"$here/lib/transit\"
[ $# -gt 0 ] || { echo \"usage: $0 transit-record|transit-plan|transit-replay ...\" >&2; exit 125; }
exec \"$@\"
";

/// Builds in release mode and fills `directory`.
pub(crate) fn run(directory: &Path) -> Result<()> {
    let built = build()?;
    let (bin, lib, gpu) = (
        directory.join("bin"),
        directory.join("lib/transit"),
        directory.join("gpu"),
    );
    for folder in [&bin, &lib, &gpu] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for name in PROGRAMS {
        install(&built.join(name), &bin.join(name))?;
    }
    for name in LIBRARIES {
        install(&built.join(name), &lib.join(name))?;
    }
    let root = transit_harness::workspace();
    for name in GPU_FILES {
        fs::copy(root.join("fixtures/gpu").join(name), gpu.join(name))
            .with_context(|| format!("copying fixtures/gpu/{name}"))?;
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
        fs::copy(root.join(name), directory.join(name))?;
    }
    let script = directory.join("run.sh");
    fs::write(&script, RUN_SH)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let floor = floor(&bin, &lib)?;
    println!("packed {} (needs glibc {floor})", directory.display());
    println!(
        "next: {}/run.sh transit-record -o warmup.trace.zst -- YOUR JOB",
        directory.display()
    );
    Ok(())
}

fn build() -> Result<PathBuf> {
    let root = transit_harness::workspace();
    let target = root.join("target");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--release", "--target", TARGET]);
    for package in ["transit-record", "transit-replay", "transit-plan"] {
        command.args(["--package", package]);
    }
    for shim in ["transit-record-shim", "transit-replay-shim"] {
        command.args(["--package", shim]);
    }
    let zig = Command::new("python3")
        .args(["-m", "ziglang", "version"])
        .output();
    if zig.is_ok_and(|output| output.status.success()) {
        let linker = target.join("zig-cc.sh");
        fs::create_dir_all(&target)?;
        let text = format!(
            "#!/bin/sh\nexec python3 -m ziglang cc -target x86_64-linux-gnu.{FLOOR} \"$@\"\n"
        );
        fs::write(&linker, text)?;
        fs::set_permissions(&linker, fs::Permissions::from_mode(0o755))?;
        command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", &linker);
    } else {
        eprintln!(
            "xtask: zig is not installed, so the bundle will need this machine's glibc; \
             for {FLOOR}: python3 -m pip install ziglang"
        );
    }
    run_command(&mut command)?;
    Ok(target.join(TARGET).join("release"))
}

fn install(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    run_command(Command::new("strip").arg(to))
}

/// The newest glibc symbol version any packed file asks for.
fn floor(bin: &Path, lib: &Path) -> Result<String> {
    let mut versions = Vec::new();
    let files = PROGRAMS
        .iter()
        .map(|n| bin.join(n))
        .chain(LIBRARIES.iter().map(|n| lib.join(n)));
    for file in files {
        let output = Command::new("readelf")
            .args(["--wide", "-V"])
            .arg(&file)
            .output()?;
        ensure!(
            output.status.success(),
            "readelf cannot read {}",
            file.display()
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for part in text.split("GLIBC_").skip(1) {
            let number: String = part
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            let key: Vec<u32> = number.split('.').filter_map(|n| n.parse().ok()).collect();
            versions.push((key, number));
        }
    }
    Ok(versions
        .into_iter()
        .max()
        .map(|(_, number)| number)
        .unwrap_or_default())
}

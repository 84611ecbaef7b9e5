//! `cargo xtask pack DIR`: a stripped bundle of launchers, shims and planner that runs without
//! Rust. Shims are loaded into other people's processes, so they must load on old systems: the
//! bundle is linked against glibc 2.28 with zig's linker (`pip install ziglang`) where that is
//! installed, and against this machine's glibc otherwise; it says which floor it has, and with
//! `--floor` fails above it. A bundle that [`packed`] finds fault with is a failure either way.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::build::{everything, run as run_command};
use crate::packed;

/// Target triple of the bundle.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The glibc every supported system has (RHEL 8, Debian 10, Ubuntu 20.04).
const FLOOR: &str = "2.28";
/// Programs of the bundle.
const PROGRAMS: &[&str] = &["transit-record", "transit-replay", "transit-plan"];
/// Libraries of the bundle, and the lists of what they export.
const LIBRARIES: &[(&str, &str)] = &[
    ("libtransit_record.so", "transit-record/shim/exports.txt"),
    ("libtransit_replay.so", "transit-replay/shim/exports.txt"),
];
/// What is run on a real GPU.
const GPU_FILES: &[&str] = &[
    "README.md",
    "train.py",
    "evidence.py",
    "suite.py",
    "jobs/loop.py",
    "jobs/on_torch.py",
    "jobs/on_jax.py",
    "jobs/on_cupy.py",
    "jobs/on_ranks.py",
    "selftest.cu",
    "managed_pool.cu",
    "probes/birth.cu",
    "probes/calls.cu",
    "probes/records.cu",
    "probes/turning.cu",
];

const RUN_SH: &str = "#!/bin/sh
# Puts the bundle's programs on PATH and runs what follows: ./run.sh transit-record -o x.trace.zst -- job
here=$(CDPATH= cd -- \"$(dirname -- \"$0\")\" && pwd)
export PATH=\"$here/bin:$PATH\" TRANSIT_SHIM_DIR=\"$here/lib/transit\"
[ $# -gt 0 ] || { echo \"usage: $0 transit-record|transit-plan|transit-replay ...\" >&2; exit 125; }
exec \"$@\"
";

/// Options of `cargo xtask pack`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to make.
    directory: PathBuf,
    /// Fail if a packed file needs a newer glibc than this; without a version, than 2.28.
    #[arg(long, value_name = "VERSION", num_args = 0..=1, default_missing_value = FLOOR)]
    floor: Option<String>,
}

impl Args {
    /// Whatever floor this machine gives.
    pub(crate) fn into_folder(directory: PathBuf) -> Self {
        Self {
            directory,
            floor: None,
        }
    }
}

/// Builds in release mode, fills the folder and checks what is in it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let directory = args.directory.as_path();
    let built = build()?;
    let (bin, lib, gpu) = (
        directory.join("bin"),
        directory.join("lib/transit"),
        directory.join("gpu"),
    );
    for folder in [&bin, &lib, &gpu, &gpu.join("jobs"), &gpu.join("probes")] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for name in PROGRAMS {
        install(&built.join(name), &bin.join(name))?;
    }
    for (name, _) in LIBRARIES {
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
    let floor = check(&root, &bin, &lib, args.floor.as_deref())?;
    everything()?;
    packed::smoke(directory)?;
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

/// Checks the packed files; the newest glibc version they need.
fn check(root: &Path, bin: &Path, lib: &Path, floor: Option<&str>) -> Result<String> {
    let programs = PROGRAMS.iter().map(|name| bin.join(name));
    let libraries = LIBRARIES.iter().map(|(name, _)| lib.join(name));
    let files: Vec<PathBuf> = programs.chain(libraries).collect();
    let needs = packed::check_files(files.iter().map(PathBuf::as_path), floor)?;
    for (name, list) in LIBRARIES {
        packed::check_exports(&lib.join(name), &root.join(list))?;
    }
    Ok(needs)
}

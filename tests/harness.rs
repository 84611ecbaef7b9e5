//! Runs programs on the software GPU, bare or under a shim, and returns what a user would look at:
//! output, exit status, files and the GPU's own counters. Used by the integration tests and by
//! `cargo xtask demo`.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

/// Programs and libraries built from this workspace.
const NEEDED: &[&str] = &[
    "libsoft_gpu.so",
    "libtransit_record.so",
    "libtransit_replay.so",
    "transit-record",
    "transit-replay",
    "transit-plan",
    "trainer",
];

/// Where the workspace lies.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The folder of built programs: `TRANSIT_ARTIFACTS`, else `target/debug`.
#[must_use]
pub fn artifacts() -> PathBuf {
    let given = std::env::var_os("TRANSIT_ARTIFACTS").map(PathBuf::from);
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| {
        target
            .unwrap_or_else(|| workspace().join("target"))
            .join("debug")
    })
}

/// Fails if something is not built, or is older than a source file it is made from: `cargo test`
/// alone builds neither shims nor launchers, and a test of an old shim proves nothing.
pub fn require_fresh() -> Result<()> {
    let built = artifacts();
    for name in NEEDED {
        let path = built.join(name);
        let hint = "build everything first: cargo xtask build (or run cargo xtask test)";
        ensure!(path.exists(), "{} is not built; {hint}", path.display());
        let list = std::fs::read_to_string(built.join(format!("{}.d", stem(name))));
        let made = path.metadata()?.modified()?;
        // cargo's dep-info file: `output: source source ...`.
        for source in list.unwrap_or_default().split_whitespace().skip(1) {
            let newer = Path::new(source).metadata().and_then(|m| m.modified());
            if newer.is_ok_and(|time| time > made) {
                anyhow::bail!("{} is older than {source}; {hint}", path.display());
            }
        }
    }
    Ok(())
}

fn stem(name: &str) -> &str {
    name.strip_suffix(".so").unwrap_or(name)
}

/// A software GPU: a folder that stands in for the driver's, and its environment.
#[derive(Debug)]
pub struct SoftGpu {
    folder: TempDir,
    environment: Vec<(OsString, OsString)>,
}

/// What a program run on a software GPU left behind.
#[derive(Debug)]
pub struct Ran {
    /// Output and status.
    pub output: Output,
    /// The GPU's counters, `Null` if the program never came to its exit.
    pub stats: Value,
}

impl Ran {
    /// Standard output as text.
    #[must_use]
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// A counter by its name in the statistics file (0 if absent).
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        self.stats
            .get(name)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    }

    /// Counters at each mark the program set, in order: (name, counters).
    #[must_use]
    pub fn marks(&self) -> Vec<(String, Value)> {
        let marks = self
            .stats
            .get("marks")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let named = |m: Value| {
            let name = m
                .get("mark")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            (name, m)
        };
        marks.into_iter().map(named).collect()
    }

    /// How far a counter rose between two marks.
    #[must_use]
    pub fn rise(&self, from: &str, to: &str, counter: &str) -> u64 {
        let marks = self.marks();
        let at = |name: &str| {
            let found = marks.iter().find(|(mark, _)| mark == name);
            found
                .and_then(|(_, m)| m.get(counter))
                .and_then(Value::as_u64)
                .unwrap_or_default()
        };
        at(to).saturating_sub(at(from))
    }
}

impl SoftGpu {
    /// A GPU with `hbm_bytes` of memory.
    pub fn new(hbm_bytes: u64) -> Result<Self> {
        let folder = TempDir::with_prefix("soft-gpu-")?;
        let library = artifacts().join("libsoft_gpu.so");
        for name in ["libcuda.so.1", "libcupti.so.13"] {
            symlink(&library, folder.path().join(name))?;
        }
        let gpu = Self {
            folder,
            environment: Vec::new(),
        };
        Ok(gpu.with("SOFTGPU_HBM", hbm_bytes.to_string()))
    }

    /// The GPU with one more environment variable for every program run on it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The folder that holds `libcuda.so.1`; files of a run may be put beside it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command whose loader finds the software GPU. No TRANSIT variable of the caller leaks in.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("TRANSIT_") || text.starts_with("SOFTGPU_") {
                command.env_remove(&name);
            }
        }
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("TRANSIT_SHIM_DIR", artifacts())
            .env("SOFTGPU_STATS", self.folder.path().join("stats.json"))
            .envs(self.environment.iter().map(|(n, v)| (n, v)));
        command
    }

    /// Runs a command made by [`SoftGpu::command`] and reads the GPU's counters.
    pub fn run(&self, command: &mut Command) -> Result<Ran> {
        let stats = self.folder.path().join("stats.json");
        let _gone = std::fs::remove_file(&stats);
        let output = command
            .output()
            .with_context(|| format!("running {command:?}"))?;
        let text = std::fs::read_to_string(&stats).unwrap_or_default();
        Ok(Ran {
            output,
            stats: serde_json::from_str(&text).unwrap_or_default(),
        })
    }

    /// The trainer, bare.
    #[must_use]
    pub fn trainer(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(artifacts().join("trainer"));
        command.args(arguments);
        command
    }

    /// The trainer under `transit-record OPTIONS -o TRACE --`.
    #[must_use]
    pub fn record(&self, trace: &Path, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.command(artifacts().join("transit-record"));
        command.arg("-o").arg(trace).args(options).arg("--");
        command.arg(artifacts().join("trainer")).args(arguments);
        command
    }

    /// The trainer under `transit-replay OPTIONS --plan PLAN --`.
    #[must_use]
    pub fn replay(&self, plan: &Path, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.command(artifacts().join("transit-replay"));
        command.arg("--plan").arg(plan).args(options).arg("--");
        command.arg(artifacts().join("trainer")).args(arguments);
        command
    }
}

/// Runs the planner with `arguments`.
pub fn plan(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<Output> {
    let mut command = Command::new(artifacts().join("transit-plan"));
    for argument in arguments {
        command.arg(argument);
    }
    command
        .output()
        .with_context(|| format!("running {command:?}"))
}

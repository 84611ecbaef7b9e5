//! The jobs that faults are tried on: each with what a bare run prints, the driver calls its source
//! makes, and a good plan from a recording on a small emulated card.

use std::path::{Path, PathBuf};

use transit_harness::{SoftGpu, artifacts, workspace};

use crate::hazards::compile;

/// Card of the recordings: smaller than what the jobs use.
const CARD: &str = "20MiB";

/// A trainer that takes a tenth of a second of processor time.
const TRAINER: [&str; 6] = ["--layers", "2", "--elements", "196608", "--steps", "4"];

/// A job that is ready to be run.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Name in messages.
    pub(crate) name: &'static str,
    /// Program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// What it prints when nothing fails, see [`super::outcome::results`].
    pub(crate) results: String,
    /// Good plans for it.
    pub(crate) plans: Vec<PathBuf>,
    source: String,
    _gpu: SoftGpu,
}

impl Prepared {
    /// Every job.
    pub(crate) fn all() -> Vec<Self> {
        let gpu = || SoftGpu::new(1 << 30).unwrap();
        let mut jobs = vec![
            trainer("trainer", gpu(), &[]),
            trainer("resolving by dlsym", gpu(), &["--resolve", "dlsym"]),
        ];
        let saving = gpu();
        let checkpoint = saving
            .folder()
            .join("step2.ckpt")
            .to_string_lossy()
            .into_owned();
        jobs.push(trainer(
            "saving",
            saving,
            &["--save", &checkpoint, "--save-at", "2"],
        ));
        let resuming = gpu();
        // A file of its own, as other runs may be writing theirs.
        let saved = resuming
            .folder()
            .join("saved.ckpt")
            .to_string_lossy()
            .into_owned();
        std::fs::copy(&checkpoint, &saved).unwrap();
        jobs.push(trainer("resuming", resuming, &["--resume", &saved]));
        jobs.push(trainer(
            "emptying its cache",
            gpu(),
            &["--empty-cache", "--accumulate", "2"],
        ));
        for (name, source, argument) in [
            ("graphs", "launches.c", ""),
            ("captures", "captures.c", "1"),
            ("threads", "threads.c", ""),
            ("per-thread streams", "per_thread.c", ""),
        ] {
            jobs.push(hazard(name, gpu(), source, argument));
        }
        jobs
    }

    /// Whether its calls come in an order of their own, so that one can be named by its number.
    pub(crate) fn is_ordered(&self) -> bool {
        !self.source.contains("pthread_create")
    }

    /// Whether the job itself calls this export (given without version suffix).
    pub(crate) fn calls(&self, base: &str) -> bool {
        let ends = |rest: &str| {
            let rest = rest
                .strip_prefix("_v2")
                .or(rest.strip_prefix("_v3"))
                .unwrap_or(rest);
            let rest = rest.strip_prefix("_ptsz").unwrap_or(rest);
            !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
        };
        let mut found = self.source.match_indices(base);
        found.any(|(at, _)| ends(&self.source[at + base.len()..]))
    }
}

fn trainer(name: &'static str, gpu: SoftGpu, more: &[&str]) -> Prepared {
    let arguments = TRAINER.iter().chain(more).map(|word| (*word).to_owned());
    let source = workspace().join("fixtures/programs/src/trainer/cuda.rs");
    prepare(
        name,
        gpu,
        artifacts().join("trainer"),
        arguments.collect(),
        &source,
    )
}

fn hazard(name: &'static str, gpu: SoftGpu, source: &str, argument: &str) -> Prepared {
    let program = compile(&gpu, source, &[&gpu.folder().join("libcuda.so.1")]);
    let arguments = Some(argument.to_owned()).filter(|argument| !argument.is_empty());
    let folder = workspace().join("fixtures/programs/hazards");
    let arguments = arguments.into_iter().collect();
    let mut prepared = prepare(name, gpu, program, arguments, &folder.join(source));
    // What the header's helpers call, not what it merely declares.
    let helpers = std::fs::read_to_string(folder.join("cuda_more.h")).unwrap();
    let calls = helpers
        .lines()
        .filter(|line| line.contains("CHECK(") || line.contains("{ return"));
    prepared.source.extend(calls);
    prepared
}

fn prepare(
    name: &'static str,
    gpu: SoftGpu,
    program: PathBuf,
    arguments: Vec<String>,
    source: &Path,
) -> Prepared {
    let bare = gpu.command(&program).args(&arguments).output().unwrap();
    let text = String::from_utf8_lossy(&bare.stderr).into_owned();
    assert!(bare.status.success(), "{name}: {text}");
    let trace = gpu.folder().join("own.trace.zst");
    let recorded = gpu
        .command(artifacts().join("transit-record"))
        .args(["--hbm-limit", CARD, "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .args(&arguments)
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{name}");
    let policies = ["prefetch", "advise"];
    let plans = policies
        .iter()
        .filter_map(|policy| plan(&trace, policy))
        .collect();
    Prepared {
        name,
        program,
        arguments,
        results: super::outcome::results(&bare),
        plans,
        source: std::fs::read_to_string(source).unwrap(),
        _gpu: gpu,
    }
}

/// A plan for the job, where its trace has an iteration.
fn plan(trace: &Path, policy: &str) -> Option<PathBuf> {
    let plan = trace.with_file_name(format!("{policy}.plan"));
    let made = transit_harness::plan(&[
        &"build",
        &trace,
        &"--policy",
        &policy,
        &"--hbm",
        &CARD,
        &"--emulate",
        &"-o",
        &plan,
    ]);
    made.unwrap().status.success().then_some(plan)
}

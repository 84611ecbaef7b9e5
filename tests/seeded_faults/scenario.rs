//! A seed's choice of a job, of what fails, and of a plan, and the runs that follow from it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fastrand::Rng;
use transit_harness::{SoftGpu, artifacts};

use super::jobs::Prepared;
use super::{outcome, plans};

/// A run that takes longer hangs.
const MOST_SECONDS: &str = "120";

/// Calls the shims make, or job and shims both.
const CALLS: [&str; 39] = [
    "cuMemPrefetchAsync",
    "cuMemAdvise",
    "cuMemAllocManaged",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemGetInfo",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDeviceTotalMem",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxGetState",
    "cuDriverGetVersion",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuStreamGetCtx",
    "cuThreadExchangeStreamCaptureMode",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuFuncGetName",
    "cuFuncGetParamInfo",
    "cuKernelGetParamInfo",
    "cuGraphGetNodes",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuPointerGetAttributes",
];

/// Calls only a job makes: one failing by its number must look exactly as it does bare.
const JOBS: [&str; 9] = [
    "cuInit",
    "cuDeviceGet",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuMemsetD32Async",
    "cuMemcpyHtoD",
    "cuMemcpyDtoH",
    "cuMemHostAlloc",
];

/// Exports that drivers or CUPTIs have lacked, and that no job here needs.
const OPTIONAL: [&str; 18] = [
    "cuFuncGetParamInfo",
    "cuKernelGetParamInfo",
    "cuFuncGetName",
    "cuKernelGetName",
    "cuMemPrefetchAsync_v2",
    "cuMemPrefetchAsync",
    "cuMemAdvise_v2",
    "cuMemAdvise",
    "cuMemAllocManaged",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamGetCtx",
    "cuCtxGetDevice",
    "cuGraphGetNodes",
    "cuptiGetStreamIdEx",
    "cuptiActivityFlushAll",
    "cuptiActivityConfigureUnifiedMemoryCounter",
    "cuptiGetTimestamp",
];

const CUPTI: [&str; 8] = [
    "cuptiActivityEnable",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityFlushAll",
    "cuptiActivityConfigureUnifiedMemoryCounter",
    "cuptiGetTimestamp",
    "cuptiGetStreamIdEx",
    "cuptiActivityGetNumDroppedRecords",
    "cupti*",
];

/// What a seed chose.
#[derive(Debug, Default)]
struct Scenario {
    faults: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// Calls of the job's that may fail.
    own: Vec<String>,
    /// One call of the job's fails by number: the end must be the bare one.
    exact: bool,
    /// No file may grow beyond this.
    disk_bytes: Option<u32>,
    plan: PathBuf,
    notes: Vec<String>,
}

/// Runs a seed; the error says all that is needed to repeat it.
pub(crate) fn run(seed: u64, jobs: &[Prepared], verbose: bool) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let job = &jobs[rng.usize(..jobs.len())];
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let mut scenario = choose(&mut rng, job, seed);
    scenario.plan = plan(&mut rng, jobs, job, &gpu, &mut scenario.notes);
    if verbose {
        println!("seed {seed}: {} {scenario:#?}", job.name);
    }
    let limit = ["20MiB", "8MiB", "0", "1GiB"][rng.usize(..4)];
    let trace = gpu.folder().join("x.trace.zst");
    let record = [
        "-o".as_ref(),
        trace.as_os_str(),
        "--hbm-limit".as_ref(),
        limit.as_ref(),
    ];
    let stats = gpu.folder().join("x.json");
    let replay = [
        "--plan".as_ref(),
        scenario.plan.as_os_str(),
        "--stats".as_ref(),
        stats.as_os_str(),
    ];
    let bare = scenario
        .exact
        .then(|| start(&gpu, job, &scenario, None, &[]));
    for (launcher, options) in [
        ("transit-record", record.as_slice()),
        ("transit-replay", &replay),
    ] {
        let output = start(&gpu, job, &scenario, Some(launcher), options);
        let ended = match &bare {
            Some(bare) => outcome::same(bare, &output),
            None => Ok(()),
        };
        ended
            .and_then(|()| outcome::check(job, &output, &scenario.own))
            .map_err(|why| {
                let what = format!("seed {seed}, {launcher}, job {}: {why}", job.name);
                told(&what, seed, &scenario, &output)
            })?;
    }
    readable(&trace, &scenario).map_err(|why| format!("seed {seed}, job {}: {why}", job.name))
}

/// A failed run with all that is needed to understand and to repeat it.
fn told(what: &str, seed: u64, scenario: &Scenario, output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!(
        "{what}\n{scenario:?}\n--- its output\n{out}--- its messages\n{err}--- again: \
         TRANSIT_FAULT_SEED={seed} cargo test -p transit-tests --test integration seeded_faults -- \
         --nocapture"
    )
}

/// What was recorded can be read.
fn readable(trace: &Path, scenario: &Scenario) -> Result<(), String> {
    if !trace.exists() || scenario.disk_bytes.is_some() {
        return Ok(());
    }
    let read = transit_format::trace::Trace::open(trace);
    read.map(|_| ())
        .map_err(|error| format!("the trace: {error}\n{scenario:?}"))
}

fn start(
    gpu: &SoftGpu,
    job: &Prepared,
    scenario: &Scenario,
    launcher: Option<&str>,
    options: &[&std::ffi::OsStr],
) -> Output {
    let mut command: Command = gpu.command("timeout");
    command.args(["-s", "KILL", MOST_SECONDS]);
    if let Some(bytes) = scenario.disk_bytes {
        command.arg("prlimit").arg(format!("--fsize={bytes}"));
    }
    if let Some(launcher) = launcher {
        command
            .arg(artifacts().join(launcher))
            .args(options)
            .arg("--");
    }
    command
        .arg(&job.program)
        .args(&job.arguments)
        .env("SOFTGPU_STATS", "")
        .env("SOFTGPU_FAULTS", scenario.faults.join(","))
        .envs(
            scenario
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        );
    command.output().unwrap()
}

fn pick<'a>(rng: &mut Rng, list: &[&'a str]) -> &'a str {
    list[rng.usize(..list.len())]
}

fn choose(rng: &mut Rng, job: &Prepared, seed: u64) -> Scenario {
    let mut scenario = Scenario::default();
    scenario
        .environment
        .push(("SOFTGPU_SEED", seed.to_string()));
    for _ in 0..rng.usize(1..4) {
        match rng.usize(..11) {
            0 | 1 => calls_fail(rng, job, &mut scenario),
            2 => one_call_of_the_jobs_fails(rng, job, &mut scenario),
            3 => {
                let chance = pick(rng, &["0.05", "0.5", "1"]);
                let name = pick(rng, &CUPTI);
                scenario.faults.push(format!("{name}:{chance}"));
            }
            4 => scenario
                .faults
                .push(format!("cupti-drop:{}", pick(rng, &["0.1", "0.9"]))),
            5 => missing(rng, job, &mut scenario),
            6 => scenario
                .environment
                .push(("SOFTGPU_NO_CUPTI", "1".to_owned())),
            7 => {
                let version = pick(rng, &["12000", "12020", "12030", "12080", "13020"]);
                scenario
                    .environment
                    .push(("SOFTGPU_VERSION", version.to_owned()));
            }
            8 => {
                let (name, us) = (pick(rng, &["cu*", "cupti*", "cuMem*"]), rng.u32(50..2000));
                scenario.faults.push(format!("{name}:0.02:slow{us}"));
                scenario
                    .environment
                    .push(("SOFTGPU_JITTER", seed.to_string()));
                scenario
                    .environment
                    .push(("SOFTGPU_ADDRESS_SHUFFLE", seed.to_string()));
            }
            // Another tool owns CUPTI: MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.
            9 => scenario.faults.extend(
                [
                    "cuptiSubscribe*:1:39",
                    "cuptiActivityRegisterCallbacks:1:39",
                ]
                .map(String::from),
            ),
            _ => trace_that_cannot_be_written(rng, job, &mut scenario),
        }
    }
    scenario
}

/// Calls that the shims make, or both, now and then or always.
fn calls_fail(rng: &mut Rng, job: &Prepared, scenario: &mut Scenario) {
    for _ in 0..rng.usize(1..5) {
        let name = pick(rng, &CALLS);
        let often = ["0.02", "0.3", "1"][rng.usize(..3)];
        let code = pick(rng, &["", ":1", ":2", ":201", ":700", ":801", ":999"]);
        if job.calls(name) {
            if scenario.exact {
                continue;
            }
            scenario.own.push(name.to_owned());
        }
        scenario.faults.push(format!("{name}:{often}{code}"));
    }
}

fn one_call_of_the_jobs_fails(rng: &mut Rng, job: &Prepared, scenario: &mut Scenario) {
    let name = pick(rng, &JOBS);
    if !scenario.own.is_empty() || !job.calls(name) {
        return;
    }
    let (call, code) = (
        rng.usize(1..40),
        pick(rng, &["1", "2", "700", "719", "999"]),
    );
    scenario.faults.push(format!("{name}@{call}:{code}"));
    scenario.own.push(name.to_owned());
    scenario.exact = job.is_ordered();
}

fn missing(rng: &mut Rng, job: &Prepared, scenario: &mut Scenario) {
    let wanted = (0..rng.usize(1..6)).map(|_| pick(rng, &OPTIONAL));
    let base = |name: &str| name.trim_end_matches("_v2").to_owned();
    let names: Vec<&str> = wanted.filter(|name| !job.calls(&base(name))).collect();
    scenario
        .environment
        .push(("SOFTGPU_MISSING", names.join(",")));
}

/// A disk that is full at some point, or a folder that is not there.
fn trace_that_cannot_be_written(rng: &mut Rng, job: &Prepared, scenario: &mut Scenario) {
    if job.arguments.iter().any(|argument| argument == "--save") {
        return;
    }
    scenario.disk_bytes = Some([0, 100, 1000, 5000][rng.usize(..4)]);
}

/// A good plan of the job's, another job's, a damaged one, or a hostile one.
fn plan(
    rng: &mut Rng,
    jobs: &[Prepared],
    job: &Prepared,
    gpu: &SoftGpu,
    notes: &mut Vec<String>,
) -> PathBuf {
    let whose = if rng.u8(..5) == 0 || job.plans.is_empty() {
        &jobs[0]
    } else {
        job
    };
    let good = &whose.plans[rng.usize(..whose.plans.len())];
    let out = gpu.folder().join("x.plan");
    match rng.u8(..5) {
        0 | 1 => {
            notes.push(format!("a good plan of {}", whose.name));
            return good.clone();
        }
        2 => {
            notes.push("a damaged plan".to_owned());
            let bytes = plans::damaged(rng, std::fs::read(good).unwrap());
            std::fs::write(&out, bytes).unwrap();
        }
        _ => {
            let mut plan = transit_format::plan::read(good).unwrap();
            notes.push(plans::hostile(rng, &mut plan));
            let mut bytes = Vec::new();
            if let Err(why) = transit_format::plan::write(&plan, &mut bytes) {
                // The format has no way to say it; a reader finds it cut off.
                notes.push(why.to_string());
            }
            std::fs::write(&out, bytes).unwrap();
        }
    }
    out
}

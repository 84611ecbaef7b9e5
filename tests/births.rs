//! Converted memory at its first use: where all fits it behaves as what `cuMemAlloc` gives, elsewhere
//! nothing is populated that would not stay, and results and errors are the same either way.

use std::path::{Path, PathBuf};

use serde_json::Value;
use transit_format::trace::Trace;
use transit_harness::{Ran, SoftGpu, artifacts};

use crate::hazards::compile;
use crate::storms::survives;
use crate::util::{PLENTY_BYTES, build, card_bytes, good, planner, record, replay_stats};

const MIB: u64 = 1 << 20;

/// The program on a card, and the runs of it.
struct Job {
    gpu: SoftGpu,
    program: PathBuf,
    way: &'static str,
}

impl Job {
    fn on(gpu: SoftGpu, way: &'static str) -> Self {
        let program = compile(&gpu, "births.c", &[&gpu.folder().join("libcuda.so.1")]);
        Self { gpu, program, way }
    }

    fn trace(&self) -> PathBuf {
        self.gpu.folder().join("births.trace.zst")
    }

    fn bare(&self) -> Ran {
        let ran = self.gpu.run(self.gpu.command(&self.program).arg(self.way));
        ran.unwrap()
    }

    fn record(&self, options: &[&str]) -> Ran {
        let mut command = self.gpu.command(artifacts().join("transit-record"));
        command.arg("-o").arg(self.trace()).args(options).arg("--");
        command.arg(&self.program).arg(self.way);
        self.gpu.run(&mut command).unwrap()
    }

    /// Under a plan of the small trainer's, since this job has no iterations; what the replayer says
    /// besides.
    fn replay(&self, policy: &str, card_bytes: u64, more: &[&str]) -> (Ran, Value) {
        let plan = build(&record(&self.gpu, &[]), policy, card_bytes, more);
        let stats = self.gpu.folder().join("replay.json");
        let mut command = self.gpu.command(artifacts().join("transit-replay"));
        command.arg("--plan").arg(plan).arg("--stats").arg(&stats);
        command.arg("--").arg(&self.program).arg(self.way);
        (self.gpu.run(&mut command).unwrap(), replay_stats(&stats))
    }
}

fn plenty(way: &'static str) -> Job {
    Job::on(SoftGpu::new(PLENTY_BYTES).unwrap(), way)
}

/// Device faults of every kind.
fn faults(ran: &Ran) -> u64 {
    let kinds = [
        "first_touch_faults",
        "migrating_faults",
        "remote_faults",
        "map_faults",
    ];
    kinds.iter().map(|kind| ran.counter(kind)).sum()
}

fn same(bare: &Ran, run: &Ran) {
    assert_eq!(bare.stdout(), run.stdout(), "{}", run.stderr());
    assert_eq!(bare.output.status, run.output.status, "{}", run.stderr());
}

/// Bytes that a recording converted, and whether it is whole and without migrations.
fn converted_bytes(trace: &Path) -> u64 {
    let read = Trace::open(trace).unwrap();
    assert!(read.migrations.is_empty(), "{:?}", read.migrations);
    assert_eq!(
        read.totals.hooked_ops, read.totals.cupti_ops,
        "a record that no op of the job's caused"
    );
    let converted = read.allocs.iter().filter(|alloc| alloc.converted);
    converted.map(|alloc| alloc.bytes).sum()
}

#[test]
fn where_all_fits_first_uses_do_not_fault_and_nothing_migrates() {
    for way in ["use", "loop"] {
        let job = plenty(way);
        let bare = job.bare();
        good(&bare);
        let recorded = job.record(&[]);
        same(&bare, &recorded);
        let bytes = converted_bytes(&job.trace());
        assert!(bytes > 90 * MIB, "{bytes}");
        assert_eq!(faults(&recorded), 0, "{way}");
        let said = format!("; {} MiB populated when made", bytes / MIB);
        assert!(recorded.stderr().contains(&said), "{}", recorded.stderr());
        let (replayed, stats) = job.replay("base", PLENTY_BYTES, &[]);
        same(&bare, &replayed);
        assert_eq!(faults(&replayed), 0, "{way}");
        assert_eq!(stats["populated_bytes"], bytes, "{stats}");
        assert_eq!(stats["populations_refused"], 0, "{stats}");
        assert_eq!(stats["copies_prepared"], 0, "{stats}");
    }
}

#[test]
fn turned_off_first_uses_fault_as_they_would() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let job = Job::on(gpu.with("TRANSIT_POPULATE", "0"), "use");
    let bare = job.bare();
    let recorded = job.record(&[]);
    same(&bare, &recorded);
    assert!(recorded.counter("first_touch_faults") > 0);
    assert!(!recorded.stderr().contains("populated"));
    assert!(converted_bytes(&job.trace()) > 0);
    let (replayed, stats) = job.replay("base", PLENTY_BYTES, &[]);
    same(&bare, &replayed);
    assert!(replayed.counter("first_touch_faults") > 0);
    assert_eq!(stats["populated_bytes"], 0, "{stats}");
}

#[test]
fn on_a_card_that_is_too_small_nothing_is_populated_beyond_what_fits() {
    const CARD_BYTES: u64 = 128 * MIB;
    let right = plenty("over").bare();
    good(&right);
    let job = Job::on(SoftGpu::new(CARD_BYTES).unwrap(), "over");
    let recorded = job.record(&[]);
    same(&right, &recorded);
    let most = format!(
        "; {} MiB populated when made",
        (CARD_BYTES - CARD_BYTES / 8) / MIB
    );
    assert!(recorded.stderr().contains(&most), "{}", recorded.stderr());
    for policy in ["base", "prefetch", "advise"] {
        let (replayed, stats) = job.replay(policy, CARD_BYTES, &[]);
        same(&right, &replayed);
        let populated = stats["populated_bytes"].as_u64().unwrap();
        assert!(populated <= CARD_BYTES / 8 * 7, "{policy}: {stats}");
    }
}

#[test]
fn an_emulated_card_is_left_alone() {
    let job = plenty("over");
    let bare = job.bare();
    for limit in ["0", "64MiB"] {
        let recorded = job.record(&["--hbm-limit", limit]);
        same(&bare, &recorded);
        assert!(!recorded.stderr().contains("populated"), "{limit}");
        // It begins on the host, for its first uses to be seen.
        assert!(recorded.counter("migrating_faults") > 0, "{limit}");
    }
    let (replayed, stats) = job.replay("prefetch", 64 * MIB, &["--emulate"]);
    same(&bare, &replayed);
    assert_eq!(stats["populated_bytes"], 0, "{stats}");
}

/// What shows in no record was never touched, the planner concludes from a recording of faults.
#[test]
fn where_faults_are_recorded_first_uses_fault_and_a_plan_knows_what_is_touched() {
    let job = plenty("use");
    let recorded = job.record(&["--faults"]);
    same(&job.bare(), &recorded);
    assert!(recorded.counter("first_touch_faults") > 0);
    assert!(!recorded.stderr().contains("populated"));
    // On a card that is a little too small, most memory never leaves the device once it is there.
    let card_bytes = card_bytes(110);
    let touched_bytes = |populate: &str, options: &[&str]| {
        let gpu = SoftGpu::new(card_bytes).unwrap();
        let gpu = gpu.with("TRANSIT_POPULATE", populate);
        let trace = record(&gpu, options);
        let hbm = card_bytes.to_string();
        let output = planner(&["build", trace.to_str().unwrap(), "--json", "--hbm", &hbm]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        told[0]["touched_bytes"].as_u64().unwrap()
    };
    let right = touched_bytes("0", &["--faults"]);
    assert!(right > 0);
    assert_eq!(touched_bytes("1", &["--faults"]), right);
    assert!(touched_bytes("1", &[]) >= right);
}

#[test]
fn managed_memory_of_the_jobs_own_is_touched_first_by_the_job() {
    let job = plenty("managed");
    let bare = job.bare();
    let recorded = job.record(&[]);
    same(&bare, &recorded);
    assert_eq!(faults(&bare), faults(&recorded));
    assert!(recorded.counter("first_touch_faults") > 0);
    assert!(!recorded.stderr().contains("populated"));
}

#[test]
fn an_allocation_during_a_capture_leaves_it_whole_and_the_threads_mode_as_it_was() {
    let text = survives("births.c", &["captured"]);
    assert_eq!(text.matches("mode 2 then 0: ").count(), 3, "{text}");
    assert!(text.contains("forbidden 900 1 ends 901\n"), "{text}");
    let job = plenty("captured");
    let recorded = job.record(&[]);
    same(&job.bare(), &recorded);
    assert_eq!(faults(&recorded), 0, "populated during the captures too");
}

#[test]
fn a_driver_that_refuses_costs_the_first_uses_and_nothing_else() {
    // The job itself makes one stream, and neither of the other calls; a stream of ours comes after it,
    // and only where the legacy stream would make the job's wait.
    let failing = [
        ("use", "SOFTGPU_FAULTS", "cuMemPrefetchAsync@1:801", 1),
        ("blocking", "SOFTGPU_FAULTS", "cuStreamCreate@2:2", 1),
        (
            "use",
            "SOFTGPU_MISSING",
            "cuThreadExchangeStreamCaptureMode",
            6,
        ),
    ];
    for (way, name, fault, refused) in failing {
        let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
        let job = Job::on(gpu.with(name, fault), way);
        let bare = job.bare();
        good(&bare);
        let recorded = job.record(&[]);
        same(&bare, &recorded);
        let text = recorded.stderr();
        let said = format!("; {refused} allocations not populated");
        assert!(text.contains(&said), "{fault}: {text}");
        assert!(recorded.counter("first_touch_faults") > 0, "{fault}");
        let (replayed, stats) = job.replay("base", PLENTY_BYTES, &[]);
        same(&bare, &replayed);
        assert_eq!(stats["populations_refused"], refused, "{stats}");
    }
}

/// The ceiling and its answers are those of memory that nobody touched.
#[test]
fn out_of_memory_comes_at_the_same_request_with_the_same_answers() {
    for strict in ["0", "1"] {
        let run = |populate: &str| {
            let gpu = SoftGpu::new(512 * MIB).unwrap();
            let locks = gpu.folder().as_os_str().to_owned();
            let gpu = gpu
                .with("TRANSIT_LOCK_DIR", locks)
                .with("TRANSIT_NO_OVERSUBSCRIBE", strict)
                .with("TRANSIT_CEILING_BYTES", (768 * MIB).to_string())
                .with("TRANSIT_POPULATE", populate);
            let recorded = Job::on(gpu, "most").record(&[]);
            good(&recorded);
            recorded.stdout()
        };
        let text = run("1");
        assert_eq!(text, run("0"), "no-oversubscribe {strict}");
        assert!(text.contains("then 2; "), "{text}");
        assert!(text.ends_with("back 1\n"), "{text}");
    }
}

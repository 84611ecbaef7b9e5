//! Jobs of several processes: each rank gets its own trace and plan whoever starts it, ranks that
//! wait for each other never wait for us, and processes that do not train leave nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_format::trace::{End, Trace};
use transit_harness::{SoftGpu, artifacts, plan, workspace};

use crate::hazards::compile;
use crate::storms::{assert_same, bounded, survives_on};
use crate::util::{PLENTY_BYTES, SMALL, build, record};

/// Files under `folder` that a shim may have made, sorted: everything but the GPU and the programs.
fn litter(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains("trace") || name.contains("lock") || name.contains("tmp"))
        .collect();
    names.sort();
    names
}

fn program(gpu: &SoftGpu, name: &str) -> PathBuf {
    let cuda = gpu.folder().join("libcuda.so.1");
    compile(gpu, name, &[&cuda])
}

/// A launcher of ours with its options, the job to be added.
fn under(gpu: &SoftGpu, launcher: &str, options: &[&dyn AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = bounded(gpu, &artifacts().join(launcher));
    for option in options {
        command.arg(option);
    }
    command.arg("--");
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The stand-in for NCCL, under NCCL's name, and the program of two ranks that uses it.
fn crossed(gpu: &SoftGpu) -> PathBuf {
    let cuda = gpu.folder().join("libcuda.so.1");
    let nccl = gpu.folder().join("libnccl.so.2");
    let built = Command::new("gcc")
        .args(["-O1", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o"])
        .arg(&nccl)
        .arg(workspace().join("fixtures/programs/hazards/fake_nccl.c"))
        .arg(&cuda)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    compile(gpu, "crossed.c", &[&cuda, &nccl])
}

/// A send of one rank ends only when the other has come to its receive. Whatever the emulated card
/// waits for meanwhile, each rank must come to its receive: behind a send stand more ops than a wait
/// for each would leave time for.
#[test]
fn crossed_sends_and_receives_end_on_an_emulated_card() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let program = crossed(&gpu);
    let card = gpu.folder().join("card.trace.zst");
    let plans = gpu.folder().join("card.plan");
    for way in ["behind", "joined", "beside"] {
        let bare = run(bounded(&gpu, &program).arg(way));
        assert_eq!(text(&bare.stdout), "301.0 300.0 status 0\n", "{way}");
        let mut recorder = under(
            &gpu,
            "transit-record",
            &[&"--hbm-limit", &"8MiB", &"-o", &card],
        );
        let recorded = run(recorder.arg(&program).arg(way));
        assert_same(&bare, &recorded, way);
        for rank in ["rank0", "rank1"] {
            let trace = gpu.folder().join(format!("card.{rank}.trace.zst"));
            assert_eq!(Trace::open(&trace).unwrap().end, End::Clean, "{way} {rank}");
        }
        let built = plan(&[
            &"build",
            &card,
            &"--policy",
            &"prefetch",
            &"--hbm",
            &"8MiB",
            &"--emulate",
            &"-o",
            &plans,
        ]);
        let built = built.unwrap();
        let directed = if built.status.success() {
            plans.clone()
        } else {
            // No iteration in it: any plan with a card will do, the live loop governs.
            let small = SoftGpu::new(PLENTY_BYTES).unwrap();
            let other = build(
                &record(&small, &["--hbm-limit", "8MiB"]),
                "base",
                8 << 20,
                &["--emulate"],
            );
            std::fs::copy(other, &plans).unwrap();
            plans.clone()
        };
        let mut replayer = under(&gpu, "transit-replay", &[&"--plan", &directed]);
        let replayed = run(replayer.arg(&program).arg(way));
        assert_same(&bare, &replayed, way);
    }
}

/// One trace and one plan per rank by default, whatever kind of launcher stands between, and none of
/// the launcher's own although it looks at the GPU.
#[test]
fn every_kind_of_launcher_gives_each_rank_its_trace_and_plan() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let agent = program(&gpu, "agent.c");
    let trainer = artifacts().join("trainer");
    for (kind, looks) in [
        ("torchrun", "look"),
        ("torchrun", "blind"),
        ("openmpi", "look"),
        ("mvapich", "blind"),
        ("hydra", "look"),
        ("slurm", "look"),
    ] {
        let trace = gpu.folder().join(format!("{kind}.trace.zst"));
        let mut job = under(&gpu, "transit-record", &[&"-o", &trace]);
        let output = run(job
            .arg(&agent)
            .args([kind, looks])
            .arg(&trainer)
            .args(SMALL));
        assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
        let names = [0, 1].map(|rank| format!("{kind}.rank{rank}.trace.zst"));
        assert_eq!(litter(gpu.folder()), names, "{kind}");
        let lines = text(&output.stderr);
        assert_eq!(lines.matches(": complete").count(), 2, "{lines}");
        for (rank, name) in (0..).zip(&names) {
            let header = Trace::open(&gpu.folder().join(name)).unwrap().header;
            assert_eq!((header.rank, header.local_rank), (Some(rank), Some(rank)));
        }
        if kind == "torchrun" {
            replays_by_rank(&gpu, &trace, &agent);
        }
        for name in names {
            std::fs::remove_file(gpu.folder().join(name)).unwrap();
        }
    }
}

fn replays_by_rank(gpu: &SoftGpu, trace: &Path, agent: &Path) {
    let plan = build(trace, "prefetch", PLENTY_BYTES, &[]);
    assert!(!plan.exists(), "one plan for each rank");
    let stats = gpu.folder().join("after.{rank}.json");
    let mut job = under(
        gpu,
        "transit-replay",
        &[&"--plan", &plan, &"--stats", &stats],
    );
    job.arg(agent).args(["torchrun", "look"]);
    let output = run(job.arg(artifacts().join("trainer")).args(SMALL));
    assert!(output.status.success(), "{}", text(&output.stderr));
    for rank in 0..2 {
        let told = crate::util::replay_stats(&gpu.folder().join(format!("after.{rank}.json")));
        let name = told["plan"].as_str().unwrap().to_owned();
        assert!(name.ends_with(&format!("rank{rank}.plan")), "{name}");
        assert!(told["ops_matched_percent"].as_f64() > Some(50.0), "{told}");
    }
}

#[test]
fn a_process_that_does_not_use_the_gpu_leaves_nothing_behind() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let idle = program(&gpu, "idle.c");
    let other = SoftGpu::new(PLENTY_BYTES).unwrap();
    let plan = build(&record(&other, &[]), "prefetch", PLENTY_BYTES, &[]);
    let trace = gpu.folder().join("idle.trace.zst");
    let stats = gpu.folder().join("stats.tmp.json");
    for way in ["none", "init", "ask"] {
        let bare = run(bounded(&gpu, &idle).arg(way));
        let launchers: [(&str, Vec<&dyn AsRef<std::ffi::OsStr>>); 2] = [
            ("transit-record", vec![&"--no-oversubscribe", &"-o", &trace]),
            (
                "transit-replay",
                vec![
                    &"--no-oversubscribe",
                    &"--plan",
                    &plan,
                    &"--trace",
                    &trace,
                    &"--stats",
                    &stats,
                ],
            ),
        ];
        for (launcher, options) in launchers {
            let mut command = under(&gpu, launcher, &options);
            command.env("TRANSIT_LOCK_DIR", gpu.folder());
            let shim = if launcher == "transit-record" {
                "libtransit_record.so"
            } else {
                "libtransit_replay.so"
            };
            // Without the launcher, which may say that there is no trace.
            let mut preloaded = bounded(&gpu, &idle);
            preloaded
                .arg(way)
                .env("LD_PRELOAD", artifacts().join(shim))
                .env("TRANSIT_LOCK_DIR", gpu.folder())
                .env("TRANSIT_NO_OVERSUBSCRIBE", "1")
                .env("TRANSIT_TRACE", &trace)
                .env("TRANSIT_STATS_JSON", &stats)
                .env("TRANSIT_PLAN", &plan);
            let quiet = run(&mut preloaded);
            assert_same(&bare, &quiet, way);
            assert_eq!(text(&quiet.stderr), "", "{shim} {way}");
            assert_same(&bare, &run(command.arg(&idle).arg(way)), way);
            assert_eq!(
                litter(gpu.folder()),
                Vec::<String>::new(),
                "{launcher} {way}"
            );
        }
    }
}

/// Data-loader workers forked from a job that uses the GPU: the memory is not copied into them, and
/// however they end, no driver call is made for it.
#[test]
fn forked_workers_make_no_driver_call_and_do_not_get_the_memory() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let calls = gpu.folder().join("calls.log");
    let gpu = gpu.with("SOFTGPU_CALLS", calls.as_os_str());
    let loader = program(&gpu, "loader.c");
    let [trace, after] =
        ["loader", "after"].map(|name| gpu.folder().join(format!("{name}.trace.zst")));
    let plan = build(&record(&gpu, &[]), "prefetch", PLENTY_BYTES, &[]);
    // Under two names: a file of the tick in which a job is launched counts as the job's.
    let options: [(&str, &Path, Vec<&dyn AsRef<std::ffi::OsStr>>); 2] = [
        ("transit-record", &trace, vec![&"-o", &trace]),
        (
            "transit-replay",
            &after,
            vec![&"--plan", &plan, &"--trace", &after],
        ),
    ];
    for (launcher, trace, options) in options {
        let output = run(under(&gpu, launcher, &options).arg(&loader));
        let said = text(&output.stderr);
        assert_eq!(
            text(&output.stdout),
            "sent 6 calls 0 mean 30.0 kept yes\n",
            "{launcher}: {said}"
        );
        assert_eq!(Trace::open(trace).unwrap().end, End::Clean, "{launcher}");
        assert!(!said.contains(".pid"), "a file of a worker's: {said}");
    }
}

#[test]
fn host_memory_is_divided_among_the_ranks_of_the_host() {
    let gpu = SoftGpu::new(PLENTY_BYTES).unwrap();
    let idle = program(&gpu, "idle.c");
    let trace = gpu.folder().join("room.trace.zst");
    let room = |ranks: &[(&str, &str)]| -> u64 {
        let mut command = under(&gpu, "transit-record", &[&"-o", &trace]);
        command.envs(ranks.iter().copied());
        let output = run(command.arg(&idle).arg("room"));
        let bytes: u64 = text(&output.stdout).trim().parse().unwrap();
        bytes - PLENTY_BYTES
    };
    let alone = room(&[]);
    let four = [
        ("RANK", "0"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "4"),
    ];
    // What is available changes while other tests run, by less than half.
    assert!(room(&four) * 2 < alone && room(&four) > 0);
    let slurm = [
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_TASKS_PER_NODE", "4(x2)"),
    ];
    assert!(room(&slurm) * 2 < alone);
}

/// Files of the job's hold what the job wrote and nothing of ours, and its status is its own.
#[test]
fn a_job_that_rearranges_its_descriptors_limits_and_folder() {
    // The GPU's own file would meet the limits too.
    let gpu = SoftGpu::new(PLENTY_BYTES)
        .unwrap()
        .with("SOFTGPU_STATS", "");
    let closers = program(&gpu, "closers.c");
    for way in [
        "all",
        "stderr",
        "early-stderr",
        "chdir",
        "nofile",
        "fsize",
        "late-fsize",
        "pipe",
    ] {
        let folder = gpu.folder().to_str().unwrap().to_owned();
        let out = survives_on(&gpu, &closers, &[way, &folder]);
        assert!(out.starts_with(&format!("{way}: 3.0 ")), "{out}");
        if ["all", "stderr", "chdir"].contains(&way) {
            let trace = gpu.folder().join("storm.trace.zst");
            assert_eq!(Trace::open(&trace).unwrap().end, End::Clean, "{way}");
        }
    }
}

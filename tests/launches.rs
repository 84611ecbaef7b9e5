//! Every way work is launched: what the hooks number, the device confirms. Small C programs run
//! bare, recorded and replayed; the recorder's check must come out complete, and both shims must
//! number the same ops.

use std::path::{Path, PathBuf};

use transit_format::trace::Trace;
use transit_format::trace::check::Counted;
use transit_format::trace::model::{Op, OpKind};
use transit_harness::{SoftGpu, artifacts};

use crate::hazards::compile;
use crate::storms::plan_of;
use crate::util::inspect;

/// An op without what differs from run to run.
type Shown = (OpKind, String, u32, u32);

struct Runs {
    gpu: SoftGpu,
    printed: String,
    /// What the recorder said.
    said: String,
    recorded: PathBuf,
    replayed: PathBuf,
}

/// Runs a program bare, recorded, and replayed under a plan of its own with a trace of that.
fn run(gpu: SoftGpu, source: &str) -> Runs {
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, source, &[&cuda]);
    let bare = gpu.command(&program).output().unwrap();
    let launcher = |name: &str, options: &[&dyn AsRef<std::ffi::OsStr>]| {
        let mut command = gpu.command(artifacts().join(name));
        for option in options {
            command.arg(option);
        }
        let run = command.arg("--").arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(
            String::from_utf8_lossy(&bare.stdout),
            String::from_utf8_lossy(&run.stdout),
            "{name}: {said}"
        );
        assert_eq!(bare.status, run.status, "{name}: {said}");
        said
    };
    let recorded = gpu.folder().join("recorded.trace.zst");
    let replayed = gpu.folder().join("replayed.trace.zst");
    let said = launcher("transit-record", &[&"-o", &recorded]);
    let plan = plan_of(&gpu, &recorded);
    launcher("transit-replay", &[&"--plan", &plan, &"--trace", &replayed]);
    Runs {
        printed: String::from_utf8_lossy(&bare.stdout).into_owned(),
        gpu,
        said,
        recorded,
        replayed,
    }
}

fn runs(source: &str) -> Runs {
    run(SoftGpu::new(1 << 30).unwrap(), source)
}

fn open(path: &Path) -> Trace {
    Trace::open(path).unwrap()
}

fn shown(trace: &Trace, op: &Op) -> Shown {
    let name = trace.functions[op.function.index()].name.clone();
    (op.kind, name, op.shape, op.pointers)
}

/// The ops of each stream in order; the streams in any order, since threads race for their turns.
fn sequences(trace: &Trace) -> Vec<Vec<Shown>> {
    let mut streams = vec![Vec::new(); trace.streams.len()];
    for op in &trace.ops {
        streams[op.stream.index()].push(shown(trace, op));
    }
    streams.sort_by(|one, other| format!("{one:?}").cmp(&format!("{other:?}")));
    streams
}

/// Both shims number alike, and the device confirms every op of both.
fn complete(runs: &Runs) -> Trace {
    let recorded = open(&runs.recorded);
    let replayed = open(&runs.replayed);
    assert_eq!(sequences(&recorded), sequences(&replayed));
    for trace in [&recorded, &replayed] {
        let check = trace.totals.check.as_ref().unwrap();
        assert!(check.complete(), "{check:?}: {}", runs.said);
        assert_eq!(trace.totals.hooked_ops, trace.totals.cupti_ops);
    }
    assert!(runs.said.contains("complete"), "{}", runs.said);
    recorded
}

fn graphs(trace: &Trace) -> Vec<&Op> {
    let ops = trace.ops.iter();
    ops.filter(|op| op.kind == OpKind::Graph).collect()
}

#[test]
fn graphs_by_turns_captured_again_updated_and_without_their_originals() {
    let runs = runs("graphs.c");
    assert!(runs.printed.ends_with("calls 48\n"), "{}", runs.printed);
    let trace = complete(&runs);
    let graphs = graphs(&trace);
    assert_eq!(graphs.len(), 12 * 4, "one op for each launch");
    let allocs = |op: &Op| {
        let mut allocs: Vec<u32> = trace.pointers_of(op).iter().map(|p| p.alloc.0).collect();
        allocs.sort_unstable();
        allocs.dedup();
        allocs
    };
    for (turn, op) in graphs.iter().enumerate() {
        let wanted: &[u32] = match (turn % 4, turn / 4) {
            (1, _) => &[],
            // From the update on the first graph works on another buffer, until a node of it is
            // given the old one again.
            (0, 6..=8) => &[1, 2],
            _ => &[0, 1, 2],
        };
        assert_eq!(allocs(op), wanted, "launch {turn}");
    }
    let check = trace.totals.check.as_ref().unwrap();
    assert_eq!(check.open_launches, 1, "a node of it is switched off");
    // The empty graph runs nothing, so it has no time; every other op has.
    let untimed = |op: &&Op| op.end_ns.0 == 0;
    assert_eq!(trace.ops.iter().filter(untimed).count(), 12);
}

/// Ops are timed in bursts, where that is asked for and timing them all would slow the job. What CUPTI was
/// asked for is confirmed to the last record, and nothing else is missed.
#[test]
fn a_job_of_many_small_launches_is_timed_in_bursts() {
    let gpu = SoftGpu::new(1 << 30).unwrap();
    let cuda = gpu.folder().join("libcuda.so.1");
    let program = compile(&gpu, "many.c", &[&cuda]);
    for bursts in [true, false] {
        let path = gpu.folder().join("many.trace.zst");
        let mut command = gpu.command(artifacts().join("transit-record"));
        command.env("TRANSIT_BURSTS", if bursts { "1" } else { "0" });
        let command = command.arg("-o").arg(&path).arg("--");
        let run = command.arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.stdout, b"16320.0 16320.0\n", "{said}");
        let trace = open(&path);
        let totals = &trace.totals;
        assert!(totals.check.as_ref().unwrap().complete(), "{said}");
        assert_eq!(totals.hooked_ops, totals.cupti_ops);
        let timed = trace.ops.iter().filter(|op| op.end_ns.0 > 0).count() as u64;
        assert_eq!(timed + totals.unasked_ops, totals.ops, "{said}");
        assert_eq!(totals.unasked_ops > 0, bursts, "{said}");
        assert!(timed > 1_000, "{said}");
        assert_eq!(said.contains("while CUPTI was off"), bursts, "{said}");
        assert_eq!(inspect(&path)["totals"]["unasked_ops"], totals.unasked_ops);
    }
}

/// Ops that are under way while CUPTI is turned on or off shift no others' times and leave nothing
/// missing or unseen: slow launches, and a window that opens while other threads launch.
#[test]
fn ops_under_way_while_cupti_is_turned_cost_no_other_op_its_record() {
    let late: &[&str] = &["--skip", "20000", "--iterations", "40"];
    for (faults, bursts, options) in [
        ("cuGraphLaunch:1:slow2000", "1", &[][..]),
        ("", "1", late),
        ("", "0", late),
    ] {
        let gpu = SoftGpu::new(1 << 30)
            .unwrap()
            .with("SOFTGPU_FAULTS", faults);
        let cuda = gpu.folder().join("libcuda.so.1");
        let program = compile(&gpu, "many.c", &[&cuda]);
        let path = gpu.folder().join("many.trace.zst");
        let mut command = gpu.command(artifacts().join("transit-record"));
        command.env("TRANSIT_BURSTS", bursts);
        let command = command.args(options).arg("-o").arg(&path).arg("--");
        let run = command.arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.stdout, b"16320.0 16320.0\n", "{said}");
        let totals = open(&path).totals;
        assert!(
            totals.check.unwrap().complete(),
            "{faults} {options:?}: {said}"
        );
        assert!(totals.unasked_ops < totals.ops, "{said}");
    }
}

/// CUPTI tells of copies between the host and a managed pool as of copies between devices.
#[test]
fn copies_of_a_managed_pool_are_confirmed() {
    let runs = runs("pooled_copies.c");
    assert_eq!(runs.printed, "7 7 7 7\n");
    let trace = complete(&runs);
    let copies = trace.totals.check.as_ref().unwrap().memcpys;
    assert_eq!((copies.hooked, copies.confirmed), (4, 4));
}

#[test]
fn launches_by_every_kind_of_library_from_several_threads() {
    let gpu = SoftGpu::new(1 << 30).unwrap().with("SOFTGPU_DEVICES", "2");
    let runs = run(gpu, "styles.c");
    assert_eq!(runs.printed, "75.0 75.0 75.0 75.0 \n");
    let trace = complete(&runs);
    let busy = sequences(&trace);
    let launches: Vec<usize> = busy
        .iter()
        .map(|ops| ops.iter().filter(|op| op.1 == "add_kernel").count())
        .filter(|count| *count > 0)
        .collect();
    assert_eq!(launches, [75; 4], "each stream's ops, and in its own order");
    let devices: Vec<u32> = trace.streams.iter().map(|stream| stream.device).collect();
    assert!(devices.contains(&0) && devices.contains(&1), "{devices:?}");
    for op in trace.ops.iter().filter(|op| op.kind == OpKind::Kernel) {
        assert!(op.end_ns.0 > op.start_ns.0 && op.pointers > 0, "{op:?}");
    }
}

#[test]
fn per_thread_default_streams_are_confirmed_each_by_its_own_records() {
    for options in [&[][..], &["--skip", "4"]] {
        let gpu = SoftGpu::new(1 << 30).unwrap();
        let cuda = gpu.folder().join("libcuda.so.1");
        let program = compile(&gpu, "per_thread.c", &[&cuda]);
        let path = gpu.folder().join("threads.trace.zst");
        let mut command = gpu.command(artifacts().join("transit-record"));
        let run = command
            .args(options)
            .arg("-o")
            .arg(&path)
            .arg("--")
            .arg(program)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let trace = open(&path);
        let check = trace.totals.check.as_ref().unwrap();
        assert_eq!(check.kernels.missing(), 0, "{said}");
        assert_eq!(check.kernels.unseen, 0, "{said}");
        // What other threads issue while the window opens has a record or not.
        assert!(check.kernels.confirmed > 0, "{said}");
        let untimed = |op: &&Op| op.kind == OpKind::Kernel && op.end_ns.0 == 0;
        let untimed = trace.ops.iter().filter(untimed).count();
        assert!(untimed == 0 || !options.is_empty(), "{untimed}: {said}");
    }
}

#[test]
fn rows_with_gaps_between_them_are_confirmed_by_the_bytes_written() {
    let runs = runs("copies.c");
    let trace = complete(&runs);
    let untimed = |op: &&Op| op.end_ns.0 == 0;
    assert_eq!(trace.ops.iter().filter(untimed).count(), 0);
}

#[test]
fn a_buffer_behind_a_tensor_map_is_among_the_pointers() {
    let runs = runs("tensor_maps.c");
    let trace = complete(&runs);
    let kernels = trace.ops.iter().filter(|op| op.kind == OpKind::Kernel);
    let pointers: Vec<Vec<(u32, u64)>> = kernels
        .map(|op| {
            let found = trace.pointers_of(op).iter();
            found.map(|p| (p.alloc.0, p.offset)).collect()
        })
        .collect();
    let changed = vec![(0, 0), (2, 0)];
    assert_eq!(
        pointers,
        [
            vec![(0, 0), (1, 4096)],
            changed.clone(),
            changed,
            // A map that nobody encoded stands for nothing.
            vec![(0, 0)],
        ]
    );
}

#[test]
fn kernels_that_no_hook_saw_are_named() {
    let runs = runs("unseen.c");
    let trace = open(&runs.recorded);
    let check = trace.totals.check.as_ref().unwrap();
    let seen = Counted {
        hooked: 22,
        confirmed: 22,
        unseen: 4,
    };
    assert_eq!(check.kernels, seen, "{}", runs.said);
    assert_eq!(check.unseen_kernels, [("scale_kernel".to_owned(), 4)]);
    let words = "4 kernels that no hook saw (scale_kernel x 4)";
    assert!(runs.said.contains(words), "{}", runs.said);
    // The times of those that were seen are theirs all the same.
    assert!(trace.ops.iter().all(|op| op.end_ns.0 > 0));
    let facts = inspect(&runs.recorded);
    assert_eq!(facts["self_check"], false);
    assert_eq!(facts["totals"]["check"]["kernels"]["unseen"], 4);
}

#[test]
fn without_cupti_there_is_no_check_and_the_recorder_says_so() {
    let gpu = SoftGpu::new(1 << 30).unwrap().with("SOFTGPU_NO_CUPTI", "1");
    let runs = run(gpu, "modules.c");
    assert_eq!(open(&runs.recorded).totals.check, None);
    assert!(runs.said.contains("device records: n/a"), "{}", runs.said);
}

#[test]
fn a_capture_that_went_with_its_context_holds_nothing_up() {
    let runs = runs("lost_captures.c");
    complete(&runs);
    let card = runs.gpu.folder().join("card.trace.zst");
    let mut command = runs.gpu.command(artifacts().join("transit-record"));
    let run = command
        .args(["--hbm-limit", "8MiB", "-o"])
        .arg(card)
        .arg("--")
        .arg(runs.gpu.folder().join("lost_captures"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("settled after 43 ops, 0 put off"), "{said}");
}

#[test]
fn handles_that_come_again_for_other_kernels_have_the_new_names_and_layouts() {
    let trace = complete(&runs("modules.c"));
    let kernels = trace.ops.iter().filter(|op| op.kind == OpKind::Kernel);
    let mut names: Vec<Shown> = kernels.map(|op| shown(&trace, op)).collect();
    let per_turn = names.split_off(2);
    for turn in per_turn.chunks(4) {
        let shown: Vec<(&str, bool)> = turn.iter().map(|op| (op.1.as_str(), op.3 > 100)).collect();
        let wanted = [
            ("add_kernel", false),
            ("many", true),
            ("fill_kernel", false),
            ("add_kernel", false),
        ];
        assert_eq!(shown, wanted);
    }
}

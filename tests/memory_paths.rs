//! Every way memory is taken, and who asks for it: small C programs run bare, recorded and replayed
//! print the same, and what is converted, counted or left alone is what the pages say.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use transit_format::trace::Trace;
use transit_format::trace::model::OpKind;
use transit_harness::{SoftGpu, artifacts, workspace};

use crate::hazards::{compile, same_everywhere};
use crate::storms::survives;
use crate::util::{build, record, replay_stats};

const MIB: u64 = 1 << 20;

fn gpu() -> SoftGpu {
    SoftGpu::new(1 << 30).unwrap()
}

fn program(gpu: &SoftGpu, name: &str) -> PathBuf {
    let cuda = gpu.folder().join("libcuda.so.1");
    compile(gpu, name, &[&cuda])
}

/// `owner.c` as a shared library of that name, in the folder that the loader searches.
fn library(gpu: &SoftGpu, name: &str) -> PathBuf {
    let out = gpu.folder().join(name);
    let built = Command::new("gcc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&out)
        .arg(format!("-Wl,-soname,{name}"))
        .arg(workspace().join("fixtures/programs/hazards/owner.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(built.success());
    out
}

fn trace_of(gpu: &SoftGpu) -> PathBuf {
    gpu.folder().join("memory.trace.zst")
}

/// Runs a program under `transit-record OPTIONS`.
fn recorded(gpu: &SoftGpu, options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    let mut command = gpu.command(artifacts().join("transit-record"));
    command.arg("-o").arg(trace_of(gpu)).args(options).arg("--");
    command.arg(program).args(arguments).output().unwrap()
}

fn bare(gpu: &SoftGpu, program: &Path, arguments: &[&str]) -> Output {
    gpu.command(program).args(arguments).output().unwrap()
}

fn out(run: &Output) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn err(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn times(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

fn assert_same(bare: &Output, run: &Output) {
    assert_eq!(out(bare), out(run), "{}", err(run));
    assert_eq!(bare.status, run.status, "{}", err(run));
}

/// Bytes of allocations recorded, by whether they were converted.
fn bytes_of(trace: &Trace, converted: bool) -> u64 {
    let chosen = trace.allocs.iter().filter(|a| a.converted == converted);
    chosen.map(|alloc| alloc.bytes).sum()
}

#[test]
fn stream_ordered_memory_is_converted_through_managed_pools() {
    let gpu = gpu();
    let (bare, trace) = same_everywhere(&gpu, &program(&gpu, "pools.c"));
    let text = out(&bare);
    assert!(text.contains("default pool 780.0\n"), "{text}");
    assert!(text.contains("managed 780.0\n"), "{text}");
    let read = Trace::open(&trace).unwrap();
    // 41 buffers in each of: the default pool, one of the job's (twice).
    assert!(bytes_of(&read, true) >= 3 * 41 * 4 * MIB);
    // Every allocation but the job's two leaks is freed once, whatever freed it.
    let mut frees: Vec<u32> = read.frees.iter().map(|free| free.alloc.0).collect();
    let all = frees.len();
    frees.sort_unstable();
    frees.dedup();
    assert_eq!(frees.len(), all, "freed twice");
    assert_eq!(frees.len(), read.allocs.len(), "{:?}", read.allocs);
}

#[test]
fn a_driver_without_managed_pools_gets_its_pools_passed_and_counted() {
    let with = |name: &str, value: &str| gpu().with(name, value);
    for gpu in [with("SOFTGPU_VERSION", "12080"), with("TRANSIT_POOLS", "0")] {
        let program = program(&gpu, "caching.c");
        let bare = bare(&gpu, &program, &["a"]);
        // The harness takes the caller's TRANSIT variables away, not those given to it.
        let run = recorded(&gpu, &[], &program, &["a"]);
        assert_same(&bare, &run);
        let text = err(&run);
        let line = "allocates through cuMemAllocAsync: that memory is counted but not converted";
        assert_eq!(times(&text, line), 1, "{text}");
        let read = Trace::open(&trace_of(&gpu)).unwrap();
        assert_eq!(bytes_of(&read, true), 4 * MIB, "only what cuMemAlloc gave");
    }
}

#[test]
fn a_managed_pool_that_fails_costs_conversion_only() {
    for fault in ["cuMemPoolCreate@1:801", "cuMemAllocFromPoolAsync@1:999"] {
        let gpu = gpu().with("SOFTGPU_FAULTS", fault);
        let program = program(&gpu, "caching.c");
        // The job itself makes neither call.
        let bare = bare(&gpu, &program, &["a"]);
        assert!(bare.status.success(), "{}", out(&bare));
        let run = recorded(&gpu, &[], &program, &["a"]);
        assert_same(&bare, &run);
        let text = err(&run);
        assert_eq!(times(&text, "counted but not converted"), 1, "{text}");
    }
}

#[test]
fn stream_ordered_memory_on_an_emulated_card_and_under_a_plan() {
    let text = survives("caching.c", &["a"]);
    assert!(text.ends_with("wrong 0\n"), "{text}");
    survives("pools.c", &[]);
}

/// The driver refuses advice about memory of managed pools, the software GPU too.
#[test]
fn memory_of_pools_is_fetched_and_never_advised() {
    let gpu = gpu();
    let program = program(&gpu, "caching.c");
    let bare = bare(&gpu, &program, &["a"]);
    assert_same(&bare, &recorded(&gpu, &[], &program, &["a"]));
    let stats = gpu.folder().join("replay.json");
    let plan = build(&trace_of(&gpu), "advise", 1 << 30, &[]);
    let mut run = gpu.command(artifacts().join("transit-replay"));
    run.arg("--plan").arg(plan).arg("--stats").arg(&stats);
    assert_same(
        &bare,
        &run.arg("--").arg(&program).arg("a").output().unwrap(),
    );
    let told = replay_stats(&stats);
    // Both ways of advising were open: a bound allocation with a placement, and a midpoint.
    assert!(told["bound_bytes"].as_u64() > Some(4 * MIB), "{told}");
    assert!(told["iterations_completed"].as_u64() > Some(2), "{told}");
    assert_eq!(told["driver_errors"], 0, "{told}");
    // What `cuMemAlloc` gave alone.
    assert_eq!(told["advised_bytes"], 4 * MIB, "{told}");
}

#[test]
fn what_pools_keep_is_given_back_before_a_request_fails() {
    let gpu = SoftGpu::new(512 * MIB)
        .unwrap()
        .with("SOFTGPU_DEVICES", "2")
        .with("TRANSIT_NO_OVERSUBSCRIBE", "1");
    let locks = gpu.folder().as_os_str().to_owned();
    let gpu = gpu.with("TRANSIT_LOCK_DIR", locks);
    let program = program(&gpu, "keeps.c");
    let bare = bare(&gpu, &program, &[]);
    assert!(out(&bare).ends_with("far 1 second's 1\n"), "{}", out(&bare));
    assert_same(&bare, &recorded(&gpu, &[], &program, &[]));
    let read = Trace::open(&trace_of(&gpu)).unwrap();
    // All but the 8 MiB asked of another device than the current one's.
    assert_eq!(bytes_of(&read, true), (200 + 300 + 300 + 8) * MIB);
}

#[test]
fn field_report_22_expandable_segments_are_counted_and_the_setting_is_named_once() {
    let gpu = gpu().with("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    let program = program(&gpu, "segments.c");
    let (bare, trace) = same_everywhere(&gpu, &program);
    let text = out(&bare);
    assert_eq!(times(&text, "back 1\n"), 3, "{text}");
    let read = Trace::open(&trace).unwrap();
    let notes = &read.header.notes;
    assert!(
        notes.iter().any(|(name, value)| {
            name == "PYTORCH_CUDA_ALLOC_CONF" && value == "expandable_segments:True"
        }),
        "{notes:?}"
    );
    let plan = build(&record(&gpu, &[]), "prefetch", 1 << 30, &[]);
    let mut replayed = gpu.command(artifacts().join("transit-replay"));
    let replayed = replayed.arg("--plan").arg(plan).arg("--").arg(&program);
    for run in [
        recorded(&gpu, &[], &program, &[]),
        replayed.output().unwrap(),
    ] {
        let said = err(&run);
        let line = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False";
        assert_eq!(times(&said, line), 1, "{said}");
        assert_eq!(
            times(&said, "through cuMemCreate: that memory is counted"),
            1,
            "{said}"
        );
    }
}

#[test]
fn memory_nodes_of_graphs_are_counted_as_the_driver_holds_them() {
    let gpu = gpu();
    let program = program(&gpu, "graphmem.c");
    let (bare, _) = same_everywhere(&gpu, &program);
    let text = out(&bare);
    assert!(text.ends_with("gone held 0 back 1\n"), "{text}");
    let said = err(&recorded(&gpu, &[], &program, &[]));
    assert_eq!(times(&said, "through memory nodes of graphs"), 1, "{said}");
}

// Field report 25: the exact error and an untouched answer, or a framework never frees its cache.
#[test]
fn field_report_25_a_caching_allocator_frees_its_cache_and_goes_on() {
    let gpu = gpu().with("TRANSIT_CEILING_BYTES", (64 * MIB).to_string());
    let program = program(&gpu, "caching.c");
    for way in ["m", "p", "a"] {
        let bare = bare(&gpu, &program, &[way]);
        assert!(out(&bare).ends_with("wrong 0\n"), "{}", out(&bare));
        assert!(err(&bare).contains("flushed 0\n"), "{}", err(&bare));
        let run = recorded(&gpu, &[], &program, &[way]);
        assert_same(&bare, &run);
        assert!(!err(&run).contains("flushed 0\n"), "{way}: {}", err(&run));
    }
}

#[test]
fn answers_about_converted_memory_are_those_about_device_memory() {
    let gpu = gpu();
    let (bare, _) = same_everywhere(&gpu, &program(&gpu, "answers.c"));
    assert_eq!(times(&out(&bare), "totals agree 1 free fits 1"), 2);
}

#[test]
fn field_report_16_an_export_that_fails_teaches_the_next_run() {
    let gpu = gpu();
    let cuda = gpu.folder().join("libcuda.so.1");
    let owner = library(&gpu, "libowner.so");
    let program = compile(&gpu, "shares.c", &[&owner, &cuda]);
    let rules = gpu.folder().join("transit-exclude.txt");
    let bare = bare(&gpu, &program, &[]);
    assert!(out(&bare).starts_with("ipc 0 inside 0\n"), "{}", out(&bare));
    let first = recorded(&gpu, &[], &program, &[]);
    assert!(first.status.success());
    assert!(
        out(&first).starts_with("ipc 1 inside 1\n"),
        "{}",
        out(&first)
    );
    let said = err(&first);
    assert_eq!(
        times(&said, "cuIpcGetMemHandle, called by shares"),
        1,
        "{said}"
    );
    assert_eq!(times(&said, "cuMemGetHandleForAddressRange"), 1, "{said}");
    assert!(
        said.contains("(5242880 bytes, asked for by libowner.so)"),
        "{said}"
    );
    let text = std::fs::read_to_string(&rules).unwrap();
    let expected = "# transit exclusions 1\n\
        bytes=6291456 call=cuIpcGetMemHandle caller=libowner.so\n\
        bytes=10485760 call=cuMemGetHandleForAddressRange caller=libowner.so\n";
    assert_eq!(text, expected);
    // The next run leaves such memory as it is, and nothing else.
    let second = recorded(&gpu, &[], &program, &[]);
    assert_same(&bare, &second);
    assert!(
        !err(&second).contains("cannot be shared"),
        "{}",
        err(&second)
    );
    let read = Trace::open(&trace_of(&gpu)).unwrap();
    assert_eq!(bytes_of(&read, false), 14 * MIB, "{:?}", read.allocs);
    assert_eq!(bytes_of(&read, true), 32 * MIB, "{:?}", read.allocs);
    assert_eq!(std::fs::read_to_string(&rules).unwrap(), expected);
    // The plan lies beside the trace, so the replayed run knows the rules too.
    let plan = build(&record(&gpu, &[]), "prefetch", 1 << 30, &[]);
    let mut replayed = gpu.command(artifacts().join("transit-replay"));
    let replayed = replayed.arg("--plan").arg(plan).arg("--").arg(&program);
    assert_same(&bare, &replayed.output().unwrap());
}

#[test]
fn a_foreign_exclusion_file_is_named_once_and_never_written_to() {
    let gpu = gpu();
    let cuda = gpu.folder().join("libcuda.so.1");
    let owner = library(&gpu, "libowner.so");
    let program = compile(&gpu, "shares.c", &[&owner, &cuda]);
    let foreign = gpu.folder().join("notes.txt");
    let text = "what to buy\nbytes=6291456 call=x caller=libowner.so\nbytes=many\n";
    std::fs::write(&foreign, text).unwrap();
    let options = ["--exclude-file", foreign.to_str().unwrap()];
    let run = recorded(&gpu, &options, &program, &[]);
    assert!(run.status.success());
    let said = err(&run);
    assert_eq!(
        times(&said, "2 lines are no exclusion rules; ignored"),
        1,
        "{said}"
    );
    assert_eq!(times(&said, "is no exclusion file"), 1, "{said}");
    // The one line that is a rule holds.
    assert!(out(&run).starts_with("ipc 0 inside 0\n"), "{}", out(&run));
    assert_eq!(std::fs::read_to_string(&foreign).unwrap(), text);
}

/// The caller and conversion of each allocation, by size in MiB.
fn callers(gpu: &SoftGpu) -> Vec<(u64, String, bool)> {
    let read = Trace::open(&trace_of(gpu)).unwrap();
    let all = read.allocs.iter();
    all.map(|alloc| (alloc.bytes / MIB, alloc.caller.clone(), alloc.converted))
        .collect()
}

#[test]
fn field_report_14_and_15_a_library_of_communication_is_known_however_it_was_loaded() {
    let gpu = gpu();
    let cuda = gpu.folder().join("libcuda.so.1");
    let nccl = library(&gpu, "libnccl.so.2");
    let linked = compile(
        &gpu,
        "owned.c",
        &[Path::new("-Wl,--no-as-needed"), &nccl, &cuda],
    );
    let expect = |converted: bool| {
        let nccl = |mib: u64| (mib, "libnccl.so.2".to_owned(), converted);
        vec![(7, "owned".to_owned(), true), nccl(3), nccl(4), nccl(5)]
    };
    let first = bare(&gpu, &linked, &[]);
    assert!(
        out(&first).starts_with("host 0 device 0\n"),
        "{}",
        out(&first)
    );
    assert_same(&first, &recorded(&gpu, &[], &linked, &[]));
    assert_eq!(callers(&gpu), expect(false));
    // Taken off the list, its memory is converted like anybody's.
    let included = recorded(&gpu, &["--include", "libnccl"], &linked, &[]);
    assert_same(&first, &included);
    assert_eq!(callers(&gpu), expect(true), "{}", err(&included));
    let loaded = compile(&gpu, "owned.c", &[&cuda]);
    let path = [nccl.to_str().unwrap()];
    let bare = bare(&gpu, &loaded, &path);
    assert_same(&bare, &recorded(&gpu, &[], &loaded, &path));
    assert_eq!(callers(&gpu), expect(false));
    // Any other library can be put on it.
    let other = library(&gpu, "libmine.so");
    let path = [other.to_str().unwrap()];
    let run = recorded(&gpu, &["--exclude", "libmine"], &loaded, &path);
    assert_same(&bare, &run);
    let mine = callers(&gpu);
    assert!(
        mine.contains(&(3, "libmine.so".to_owned(), false)),
        "{mine:?}"
    );
}

#[test]
fn copies_by_structures_and_in_batches_are_ops() {
    let gpu = gpu();
    let (_, trace) = same_everywhere(&gpu, &program(&gpu, "boxes.c"));
    let read = Trace::open(&trace).unwrap();
    let copies = read.ops.iter().filter(|op| op.kind == OpKind::Memcpy);
    // Two between contexts, one batch, three to the host; the refused batch is one as well.
    assert!(copies.count() >= 6, "{:?}", read.ops);
}

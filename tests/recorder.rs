//! The recorder: what a trace holds under a window, an emulated card, without CUPTI, and when a
//! job has several processes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use transit_format::trace::model::{Direction, MarkKind};
use transit_format::trace::{End, Trace};
use transit_harness::{SoftGpu, artifacts};

use crate::util::{PLENTY_BYTES, SMALL, bare, good, record, weights};

const CHUNK_BYTES: u64 = 2 << 20;

fn gpu() -> SoftGpu {
    SoftGpu::new(PLENTY_BYTES).unwrap()
}

fn recorded(gpu: &SoftGpu, options: &[&str]) -> Trace {
    Trace::open(&record(gpu, options)).unwrap()
}

#[test]
fn an_emulated_card_is_never_over_its_limit_and_changes_no_result() {
    const CARD_BYTES: u64 = 48 << 20;
    let gpu = gpu();
    let path = gpu.folder().join("card.trace.zst");
    let limit = CARD_BYTES.to_string();
    let ran = gpu
        .run(&mut gpu.record(&path, &["--hbm-limit", &limit], SMALL))
        .unwrap();
    assert_eq!(weights(&ran), bare(SMALL));
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.header.emulated_card_bytes, Some(CARD_BYTES));
    let mut moved = trace.migrations.clone();
    moved.sort_by_key(|migration| (migration.op, migration.start_ns));
    assert!(moved.iter().all(|migration| migration.op.is_some()));
    let mut resident = BTreeSet::new();
    let mut peak = 0;
    for (at, migration) in moved.iter().enumerate() {
        let base = trace.allocs[migration.alloc.index()].address + migration.offset;
        for chunk in base / CHUNK_BYTES..(base + migration.bytes).div_ceil(CHUNK_BYTES) {
            if migration.direction == Direction::HtoD {
                resident.insert(chunk);
            } else {
                resident.remove(&chunk);
            }
        }
        let settled = moved.get(at + 1).is_none_or(|next| next.op != migration.op);
        if settled {
            peak = peak.max(resident.len() as u64 * CHUNK_BYTES);
        }
    }
    assert!(peak <= CARD_BYTES, "{peak} bytes after an op was settled");
    assert!(
        peak > CARD_BYTES / 2,
        "the card was never full: {peak} bytes"
    );
}

#[test]
fn a_window_ends_and_the_job_goes_on() {
    let gpu = gpu();
    let whole = recorded(&gpu, &[]).ops.len();
    let path = gpu.folder().join("window.trace.zst");
    let arguments = ["--layers", "3", "--elements", "524288", "--steps", "24"];
    let ran = gpu
        .run(&mut gpu.record(&path, &["--iterations", "2"], &arguments))
        .unwrap();
    assert_eq!(weights(&ran), bare(&arguments));
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.end, End::Clean);
    let ends = trace
        .marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::WindowEnd);
    assert_eq!(ends.count(), 1);
    let ops = trace.ops.len();
    assert!(ops > whole / 8 * 3, "{ops} ops, 8 iterations have {whole}");
    assert!(ops < whole / 8 * 20, "{ops} ops, 8 iterations have {whole}");
    assert_eq!(trace.totals.hooked_ops, trace.totals.cupti_ops);
}

#[test]
fn a_skipped_beginning_keeps_its_allocations() {
    let gpu = gpu();
    let whole = recorded(&gpu, &[]);
    let part = recorded(&gpu, &["--skip", "50"]);
    assert_eq!(part.ops.len() + 50, whole.ops.len());
    assert_eq!(part.allocs.len(), whole.allocs.len());
    assert_eq!(part.totals.hooked_ops, part.totals.cupti_ops);
    assert!(part.ops.iter().all(|op| op.start_ns >= op.issued_ns));
}

#[test]
fn without_cupti_the_hooks_record_on_and_the_header_says_why() {
    let gpu = gpu().with("SOFTGPU_NO_CUPTI", "1");
    let trace = recorded(&gpu, &[]);
    assert!(!trace.ops.is_empty() && trace.migrations.is_empty());
    assert!(trace.header.notes.iter().any(|(name, _)| name == "cupti"));
    assert_eq!(trace.totals.cupti_ops, 0);
}

#[test]
fn what_cupti_drops_is_counted() {
    let gpu = gpu().with("SOFTGPU_FAULTS", "cupti-drop:0.3");
    let path = gpu.folder().join("drops.trace.zst");
    let options = ["--hbm-limit", "50331648"];
    good(&gpu.run(&mut gpu.record(&path, &options, SMALL)).unwrap());
    let trace = Trace::open(&path).unwrap();
    assert!(trace.totals.drops.cupti > 0, "{:?}", trace.totals);
    assert!(trace.totals.cupti_ops < trace.totals.hooked_ops);
}

#[test]
fn two_processes_of_a_job_leave_two_traces() {
    let gpu = gpu();
    let trainer = artifacts().join("trainer");
    let script = format!("{0} {1} && {0} {1}", trainer.display(), SMALL.join(" "));
    let mut command = gpu.command(artifacts().join("transit-record"));
    command.arg("-o").arg(gpu.folder().join("two.trace.zst"));
    command.args(["--", "sh", "-c", &script]);
    good(&gpu.run(&mut command).unwrap());
    let mut traces: Vec<PathBuf> = std::fs::read_dir(gpu.folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".trace.zst"))
        .collect();
    traces.sort();
    assert_eq!(traces.len(), 2, "{traces:?}");
    let ops: Vec<usize> = traces
        .iter()
        .map(|path| Trace::open(path).unwrap().ops.len())
        .collect();
    assert!(ops[0] > 0 && ops[0] == ops[1], "{ops:?}");
}

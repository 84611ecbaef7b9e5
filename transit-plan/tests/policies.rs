//! Plans do what their policy promises, judged on a card simulated here, apart from the planner's.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::{HashMap, HashSet, VecDeque};

use support::{CHUNK, Job, Made};
use transit_format::ids::{AllocId, Nanos, OpSeq, StreamId};
use transit_format::plan::model::{Action, Plan};
use transit_format::trace::Trace;
use transit_format::trace::model::{Direction, Fault, Migration};
use transit_plan::build::{Options, Study, study};
use transit_plan::compose::step_bytes;
use transit_plan::policy::Policy;
use transit_plan::ranges::Span;
use transit_plan::timeline::Timeline;

/// A card by another's hand: chunks by (allocation, place), first in first out by last migration.
struct Card {
    capacity: usize,
    order: VecDeque<(u32, u64)>,
    faults: usize,
    peak: usize,
}

impl Card {
    fn new(capacity: usize, resident: &[(u32, u64)]) -> Self {
        let order = resident.iter().copied().collect();
        Self {
            capacity,
            order,
            faults: 0,
            peak: resident.len(),
        }
    }

    fn leave(&mut self, chunk: (u32, u64)) {
        self.order.retain(|held| *held != chunk);
    }

    fn bring(&mut self, chunk: (u32, u64), evicts: bool) {
        if !self.order.contains(&chunk) && evicts && self.order.len() >= self.capacity {
            self.order.pop_front();
        }
        self.leave(chunk);
        self.order.push_back(chunk);
        self.peak = self.peak.max(self.order.len());
    }

    fn access(&mut self, chunk: (u32, u64), evicts: bool) {
        if !self.order.contains(&chunk) {
            self.faults += 1;
            self.bring(chunk, evicts);
        }
    }
}

fn chunks(plan: &Plan, alloc: u32, offset: u64, bytes: u64) -> Vec<(u32, u64)> {
    let ordinal = plan.allocs[alloc as usize].ordinal;
    (offset / CHUNK..(offset + bytes).div_ceil(CHUNK))
        .map(|place| (ordinal, place))
        .collect()
}

/// What the plan does before each op of each stream, and what the op then touches.
fn replay(plan: &Plan, made: &Made, card: &mut Card, rounds: usize, evicts: bool) -> Vec<usize> {
    let mut faults = Vec::new();
    let first = made.step_starts[made.step_starts.len() - 2] as usize;
    let last = made.step_starts[made.step_starts.len() - 1] as usize;
    for _ in 0..rounds {
        card.faults = 0;
        let mut ordinals: HashMap<u32, u32> = HashMap::new();
        for op in &made.trace.ops[first..last] {
            let ordinal = ordinals.entry(op.stream.0).or_insert(0);
            for step in &plan.steps {
                if step.stream != op.stream || step.ordinal.0 != *ordinal {
                    continue;
                }
                for range in &step.ranges {
                    for chunk in chunks(plan, range.alloc, range.offset, range.bytes) {
                        match step.action {
                            Action::EvictToHost => card.leave(chunk),
                            Action::PrefetchToDevice => card.bring(chunk, evicts),
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }
            *ordinal += 1;
            for pointer in made.trace.pointers_of(op) {
                let bytes = made.trace.allocs[pointer.alloc.index()].bytes;
                for place in 0..bytes / CHUNK {
                    card.access((pointer.alloc.0, place), evicts);
                }
            }
        }
        faults.push(card.faults);
    }
    faults
}

fn oversubscribed(percent: u64) -> (Job, u64) {
    let job = Job {
        layers: 8,
        weight_chunks: 5,
        ..Job::default()
    };
    let card = job.total_chunks() * 100 / percent;
    (
        Job {
            card_chunks: Some(card as usize),
            ..job
        },
        card,
    )
}

/// The reserve is taken off the card: a card on which the wanted chunks stay.
fn hbm_of(card_chunks: u64) -> u64 {
    (card_chunks * CHUNK * 100).div_ceil(97) + (CHUNK / 2)
}

fn build(made: &Made, card_chunks: u64, options: Options) -> Study {
    let options = Options {
        hbm_bytes: Some(hbm_of(card_chunks)),
        ..options
    };
    let found = study(&made.trace, "", &options, |_| ()).unwrap();
    assert!(found.has_phase(), "{:?}", found.phase);
    assert_eq!(found.capacity.managed_bytes, card_chunks * CHUNK);
    found
}

fn plan_of(found: &Study, policy: Policy) -> &Plan {
    &found
        .built
        .iter()
        .find(|built| built.policy == policy)
        .unwrap()
        .plan
}

fn start_of(plan: &Plan) -> Vec<(u32, u64)> {
    plan.start_resident
        .iter()
        .flat_map(|r| chunks(plan, r.alloc, r.offset, r.bytes))
        .collect()
}

#[test]
fn prefetch_leaves_hardly_a_fault_where_base_thrashes() {
    for percent in [110, 141, 187] {
        let (job, card) = oversubscribed(percent);
        let made = job.make();
        let found = build(&made, card, Options::default());
        let run = |plan: &Plan| {
            let mut simulated = Card::new(card as usize, &[]);
            *replay(plan, &made, &mut simulated, 5, true).last().unwrap()
        };
        let base = run(plan_of(&found, Policy::Base));
        let prefetch = run(plan_of(&found, Policy::Prefetch));
        assert!(base > 50, "{percent} %: the job does not thrash: {base}");
        assert!(
            prefetch * 20 <= base,
            "{percent} %: {prefetch} of {base} faults are left"
        );
    }
}

#[test]
fn prefetch_covers_what_migrated_for_each_op() {
    let (job, card) = oversubscribed(141);
    let made = job.make();
    for paper_literal in [false, true] {
        let found = build(
            &made,
            card,
            Options {
                paper_literal,
                ..Options::default()
            },
        );
        let plan = plan_of(&found, Policy::Prefetch);
        let timeline = Timeline::new(&made.trace);
        let first = *made.step_starts.iter().rev().nth(1).unwrap();
        let demanded = |migration: &&Migration| migration.direction == Direction::HtoD;
        let mut checked = 0;
        for (ordinal, seq) in (0_u32..).zip(first..*made.step_starts.last().unwrap()) {
            let steps = plan.steps.iter().filter(|step| {
                step.stream == StreamId(0)
                    && step.ordinal.0 == ordinal
                    && step.action == Action::PrefetchToDevice
            });
            let fetched: Vec<Span> = steps
                .flat_map(|step| &step.ranges)
                .map(|range| Span {
                    alloc: AllocId(plan.allocs[range.alloc as usize].ordinal),
                    start: range.offset,
                    end: range.offset + range.bytes,
                })
                .collect();
            for migration in timeline.migrations_of(seq as u32).filter(demanded) {
                let inside = |span: &Span| {
                    span.alloc == migration.alloc
                        && span.start <= migration.offset
                        && migration.offset + migration.bytes <= span.end
                };
                assert!(
                    fetched.iter().any(inside),
                    "op {ordinal}: {migration:?} {fetched:?}"
                );
                checked += 1;
            }
        }
        assert!(checked > 100, "{checked}");
    }
}

#[test]
fn ranges_stay_within_their_allocations_and_are_merged() {
    let (job, card) = oversubscribed(141);
    let made = Job {
        records_per_chunk: 16,
        ..job
    }
    .make();
    let found = build(
        &made,
        card,
        Options {
            paper_literal: true,
            ..Options::default()
        },
    );
    let plan = plan_of(&found, Policy::Prefetch);
    for step in &plan.steps {
        for range in &step.ranges {
            let alloc = plan.allocs[range.alloc as usize];
            assert!(
                range.offset + range.bytes <= alloc.bytes,
                "{range:?} {alloc:?}"
            );
            assert!(range.bytes >= CHUNK, "{range:?} was not merged");
        }
    }
}

#[test]
fn plans_that_emulate_never_hold_more_than_the_card() {
    for (percent, second_stream, micro_batches) in [
        (110, false, 1),
        (141, true, 1),
        (187, false, 4),
        (250, true, 2),
    ] {
        let (job, card) = oversubscribed(percent);
        let made = Job {
            second_stream,
            micro_batches,
            ..job
        }
        .make();
        let found = build(
            &made,
            card,
            Options {
                emulate: true,
                ..Options::default()
            },
        );
        for policy in [Policy::Base, Policy::Prefetch] {
            let plan = plan_of(&found, policy);
            assert!(plan.shape.card_bytes > 0);
            let mut simulated = Card::new(card as usize, &start_of(plan));
            replay(plan, &made, &mut simulated, 4, false);
            let peak = simulated.peak;
            assert!(
                peak <= card as usize,
                "{policy} at {percent} %: {peak} of {card} chunks"
            );
        }
    }
}

/// Bytes to the card in each of the last steps.
fn recorded_bytes(made: &Made, steps: usize) -> u64 {
    let timeline = Timeline::new(&made.trace);
    let first = made.step_starts[made.step_starts.len() - 1 - steps] as u32;
    let moved = (first..*made.step_starts.last().unwrap() as u32)
        .flat_map(|seq| timeline.migrations_of(seq))
        .filter(|migration| migration.direction == Direction::HtoD);
    moved.map(|migration| migration.bytes).sum::<u64>() / steps as u64
}

/// A first-in-first-out card does other things in each iteration, a plan the same: repeating one
/// iteration's evictions once replayed three times what was recorded.
#[test]
fn an_emulated_base_moves_what_the_recording_moved() {
    for percent in [110, 141, 187] {
        let (job, card) = oversubscribed(percent);
        let mut made = Job {
            steps: 8,
            starts_on_host: true,
            ..job
        }
        .make();
        made.trace.header.emulated_card_bytes = Some(hbm_of(card));
        let found = build(
            &made,
            card,
            Options {
                emulate: true,
                ..Options::default()
            },
        );
        let recorded = recorded_bytes(&made, 5);
        let base = found.built[0].prediction.as_ref().unwrap();
        let off = base.htod_bytes.abs_diff(recorded);
        assert!(off * 5 <= recorded, "{percent} %: {base:?}, {recorded}");
        assert_eq!(base.htod_bytes, base.dtoh_bytes, "{percent} %");
        let evicted = step_bytes(plan_of(&found, Policy::Base), Action::EvictToHost);
        assert_eq!(evicted, base.dtoh_bytes, "{percent} %");
    }
}

/// Fetching everything in order of use turns the line of a card that is a little too small once an
/// iteration: all of it moved, where Base moved the little that does not fit.
#[test]
fn prefetch_moves_no_more_than_base() {
    for percent in [103, 110, 141] {
        let (job, card) = oversubscribed(percent);
        let mut made = Job {
            steps: 8,
            starts_on_host: true,
            ..job
        }
        .make();
        made.trace.header.emulated_card_bytes = Some(hbm_of(card));
        for emulate in [false, true] {
            let found = build(
                &made,
                card,
                Options {
                    emulate,
                    ..Options::default()
                },
            );
            let of = |place: usize| found.built[place].prediction.as_ref().unwrap();
            let (base, prefetch) = (of(0), of(1));
            assert!(
                prefetch.htod_bytes <= base.htod_bytes,
                "{percent} %: {prefetch:?} {base:?}"
            );
            assert_eq!(prefetch.migrating_faults, 0, "{percent} %");
            assert_eq!(prefetch.htod_bytes, prefetch.dtoh_bytes, "{percent} %");
        }
    }
}

/// A pointer says where memory begins, not where it ends. What was on the host when the recording
/// began and never came, or shows in no fault, is neither planned for nor moved.
#[test]
fn what_never_came_to_the_card_is_not_taken_as_touched() {
    let (job, card) = oversubscribed(141);
    let touched_bytes = job.total_chunks() * CHUNK;
    for emulated in [true, false] {
        let mut made = Job {
            starts_on_host: emulated,
            slack_chunks: 2,
            ..job.clone()
        }
        .make();
        assert!(build(&made, card, Options::default()).touched_bytes > touched_bytes);
        if emulated {
            made.trace.header.emulated_card_bytes = Some(hbm_of(card));
        } else {
            made.trace.header.faults_recorded = true;
            let chunks = |alloc: u32| {
                let bytes = made.trace.allocs[alloc as usize].bytes;
                (0..bytes / CHUNK - 2).map(move |chunk| (AllocId(alloc), chunk * CHUNK))
            };
            let all = (0..made.trace.allocs.len() as u32).flat_map(chunks);
            let fault = |(alloc, offset)| Fault {
                alloc,
                offset,
                ..Fault::default()
            };
            made.trace.faults = all.map(fault).collect();
        }
        let found = build(&made, card, Options::default());
        assert_eq!(found.touched_bytes, touched_bytes, "emulated: {emulated}");
        made.trace.totals.drops.cupti = 1;
        let found = build(&made, card, Options::default());
        assert!(found.touched_bytes > touched_bytes, "records were lost");
    }
}

/// On a first-in-first-out card all that was there has left once when as much as it holds was evicted.
#[test]
fn what_never_left_a_card_that_turned_over_was_never_there() {
    let (job, card) = oversubscribed(141);
    let mut made = Job {
        slack_chunks: 2,
        ..job.clone()
    }
    .make();
    made.trace.header.device_total_bytes = card * CHUNK;
    let found = build(&made, card, Options::default());
    assert_eq!(found.touched_bytes, job.total_chunks() * CHUNK);
}

#[test]
fn an_emulated_prefetch_leaves_no_fault() {
    let (job, card) = oversubscribed(141);
    let made = job.make();
    let found = build(
        &made,
        card,
        Options {
            emulate: true,
            ..Options::default()
        },
    );
    let plan = plan_of(&found, Policy::Prefetch);
    let mut simulated = Card::new(card as usize, &start_of(plan));
    assert_eq!(replay(plan, &made, &mut simulated, 3, false), [0, 0, 0]);
}

#[test]
fn advise_speaks_at_the_midpoint_and_emulates_until_then() {
    let (job, card) = oversubscribed(141);
    let made = job.make();
    for emulate in [false, true] {
        let found = build(
            &made,
            card,
            Options {
                emulate,
                ..Options::default()
            },
        );
        let plan = plan_of(&found, Policy::Advise);
        assert!(plan.shape.advise_all_at_midpoint);
        let main = plan.streams[0].ops.len() as u32;
        assert_eq!(plan.shape.midpoint.0, main / 2);
        for step in &plan.steps {
            let evicts = step.action == Action::EvictToHost && emulate;
            let fetches =
                step.action == Action::PrefetchToDevice && step.ordinal == plan.shape.midpoint;
            assert!(evicts || fetches, "{step:?}");
            assert!(step.ordinal <= plan.shape.midpoint, "{step:?}");
        }
        let base = found.built[0].prediction.as_ref().unwrap();
        let advise = found.built[2].prediction.as_ref().unwrap();
        assert_eq!(
            (
                advise.migrating_faults,
                advise.htod_bytes,
                advise.dtoh_bytes
            ),
            (0, 0, 0)
        );
        let moved = base.htod_bytes + base.dtoh_bytes;
        assert!(advise.zero_copy_bytes * 3 <= moved, "{advise:?} {base:?}");
    }
}

/// The driver refuses advice on memory of stream-ordered pools.
#[test]
fn advise_keeps_pools_on_the_card_and_counts_what_does_not_fit_as_migrating() {
    let (job, card) = oversubscribed(141);
    let advise = |pooled: fn(usize) -> bool| {
        let mut made = job.make();
        for (place, alloc) in made.trace.allocs.iter_mut().enumerate() {
            alloc.pooled = pooled(place);
        }
        let found = build(&made, card, Options::default());
        let built = found.built.iter().find(|one| one.policy == Policy::Advise);
        let built = built.unwrap();
        let prediction = built.prediction.clone().unwrap();
        (prediction, built.notes.clone())
    };
    let (none, _) = advise(|_| false);
    let (activations, notes) = advise(|place| place % 5 == 4);
    assert_eq!((activations.htod_bytes, activations.dtoh_bytes), (0, 0));
    assert!(activations.zero_copy_bytes >= none.zero_copy_bytes && notes.is_empty());
    let (all, notes) = advise(|_| true);
    assert!(all.htod_bytes > 0 && all.dtoh_bytes > 0 && all.zero_copy_bytes == 0);
    assert!(all.exposed_ns > none.exposed_ns);
    assert!(notes.iter().any(|note| note.contains("pools")), "{notes:?}");
}

#[test]
fn what_fits_needs_no_step() {
    let job = Job::default();
    let made = job.make();
    let found = build(&made, job.total_chunks() + 10, Options::default());
    for built in &found.built {
        assert!(
            built.plan.steps.is_empty(),
            "{}: {:?}",
            built.policy,
            built.plan.steps
        );
        assert_eq!(built.prediction.as_ref().unwrap().htod_bytes, 0);
    }
}

#[test]
fn without_a_phase_a_plan_holds_placements_only() {
    let made = Job {
        steps: 1,
        ..Job::default()
    }
    .make();
    let found = study(&made.trace, "", &Options::default(), |_| ()).unwrap();
    assert!(!found.has_phase());
    for built in &found.built {
        assert!(built.plan.steps.is_empty() && built.plan.streams.is_empty());
        assert!(built.prediction.is_none());
        assert_eq!(
            built.plan.placements.is_empty(),
            built.policy != Policy::Advise
        );
    }
}

#[test]
fn migrations_go_to_the_op_that_ran_or_the_recorder_named() {
    let (job, _) = oversubscribed(141);
    let timed = job.make();
    let hinted = Job { hints: true, ..job }.make();
    let (by_time, by_hint) = (Timeline::new(&timed.trace), Timeline::new(&hinted.trace));
    for place in 0..timed.trace.migrations.len() {
        assert_eq!(
            by_time.op_of_migration(place),
            by_hint.op_of_migration(place),
            "{place}"
        );
    }
    let live: Vec<AllocId> = by_time.live_at(OpSeq(0)).map(|(alloc, _)| alloc).collect();
    let all: HashSet<AllocId> = live.iter().copied().collect();
    assert_eq!(all.len(), timed.trace.allocs.len());
}

/// Recordings have device times of bursts of ops only, where all of them would slow the job.
fn without_times(made: &Made, ops: std::ops::Range<usize>) -> Trace {
    let mut trace = made.trace.clone();
    for op in &mut trace.ops[ops] {
        (op.start_ns, op.end_ns) = (Nanos(0), Nanos(0));
    }
    trace
}

#[test]
fn an_op_that_was_not_timed_takes_the_time_of_its_kind() {
    let job = Job::default();
    let made = job.make();
    let options = Options {
        hbm_bytes: Some(hbm_of(job.total_chunks() + 10)),
        ..Options::default()
    };
    let compute_ns = |trace: &Trace| study(trace, "", &options, |_| ()).unwrap().compute_ns;
    let whole = compute_ns(&made.trace);
    let ops = made.trace.ops.len();
    let first_third = without_times(&made, ops / 3..ops);
    assert!(whole > 0.0);
    assert_eq!(
        compute_ns(&first_third),
        whole,
        "the steady iterations had none"
    );
    assert_eq!(compute_ns(&without_times(&made, 0..ops)), 0.0, "not known");
}

#[test]
fn a_transfer_in_a_stretch_without_device_times_goes_by_the_hosts_clock() {
    let (job, _) = oversubscribed(141);
    let made = job.make();
    let ops = made.trace.ops.len();
    let partly = without_times(&made, ops / 3..ops * 2 / 3);
    let (whole, partly) = (Timeline::new(&made.trace), Timeline::new(&partly));
    let mut compared = 0;
    for place in 0..made.trace.migrations.len() {
        let one = whole.op_of_migration(place).unwrap();
        let other = partly.op_of_migration(place).unwrap();
        assert!(one.abs_diff(other) <= 1, "{place}: {one} and {other}");
        compared += u32::from((ops / 3..ops * 2 / 3).contains(&(one as usize)));
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn the_anchor_tells_the_start_of_an_iteration_from_a_micro_batch() {
    let made = Job {
        micro_batches: 4,
        ..Job::default()
    }
    .make();
    let found = study(&made.trace, "", &Options::default(), |_| ()).unwrap();
    let plan = &found.built[0].plan;
    let names: Vec<u64> = plan.streams[0].ops.iter().map(|op| op.name_hash).collect();
    let anchor = &names[..plan.shape.anchor_ops as usize];
    let places = names
        .windows(anchor.len())
        .filter(|window| *window == anchor)
        .count();
    assert_eq!(places, 1);
}

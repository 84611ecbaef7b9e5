//! What each op of the steady iteration touches, and what migrated for it.
//!
//! A migration proves a touch. A pointer argument suggests one: from its offset to the next offset
//! that any op points to. What the recorded transfers show to have been absent when the op ran, and
//! did not migrate for it in any iteration, the op does not touch.

use rayon::prelude::*;
use transit_format::ids::{AllocId, OpSeq};
use transit_format::trace::model::{Cause, Direction, FaultKind, MarkKind, Migration, Pointer};

use crate::num::index;
use crate::ranges::{Span, covered_by};
use crate::space::{Space, Touch};
use crate::timeline::Timeline;
use crate::unrolled::Unrolled;

/// Touches and recurring migrations of each op of the steady iteration, by its place.
#[derive(Default)]
pub struct Touches {
    /// Groups the op touches, by chunk, each chunk once.
    pub touched: Vec<Vec<Touch>>,
    /// What migrated in on demand in at least half of the iterations looked at, page-exact.
    pub demanded: Vec<Vec<Span>>,
}

/// Whether a migration was asked for by an op's access rather than by a call.
#[must_use]
pub fn is_demand(migration: &Migration) -> bool {
    migration.direction == Direction::HtoD
        && matches!(
            migration.cause,
            Cause::Coherence | Cause::Prefetch | Cause::Unknown
        )
}

impl Touches {
    /// Finds them.
    #[must_use]
    pub fn new(timeline: &Timeline<'_>, unrolled: &Unrolled, space: &Space) -> Self {
        let absent = Absence::new(timeline, unrolled, space);
        let ends = Ends::new(timeline, unrolled);
        let places = 0..unrolled.ops.len();
        let both: Vec<(Vec<Touch>, Vec<Span>)> = places
            .into_par_iter()
            .map(|place| {
                let lists = demand_lists(timeline, unrolled, space, place);
                let touched = touched(timeline, unrolled, space, place, &lists, &absent, &ends);
                (touched, recurring(lists))
            })
            .collect();
        let (touched, demanded) = both.into_iter().unzip();
        Self { touched, demanded }
    }

    /// The touches of the op at a place.
    #[must_use]
    pub fn touched(&self, place: usize) -> &[Touch] {
        self.touched.get(place).map_or(&[], Vec::as_slice)
    }

    /// The recurring migrations of the op at a place.
    #[must_use]
    pub fn demanded(&self, place: usize) -> &[Span] {
        self.demanded.get(place).map_or(&[], Vec::as_slice)
    }
}

/// What migrated on demand for an op's counterparts, one list per iteration that has it.
fn demand_lists(
    timeline: &Timeline<'_>,
    unrolled: &Unrolled,
    space: &Space,
    place: usize,
) -> Vec<Vec<Span>> {
    let of = |seq: u32| {
        let spans = timeline
            .migrations_of(seq)
            .filter(|m| is_demand(m))
            .filter_map(|migration| {
                let (alloc, start) = (migration.alloc, migration.offset);
                let span = Span {
                    alloc,
                    start,
                    end: start.saturating_add(migration.bytes),
                };
                span.in_pages(space.alloc_bytes(alloc))
            });
        spans.collect()
    };
    unrolled.counterparts_of(place).flatten().map(of).collect()
}

/// What migrated in at least half of the iterations.
fn recurring(mut lists: Vec<Vec<Span>>) -> Vec<Span> {
    let needed = lists.len().div_ceil(2);
    covered_by(&mut lists, needed)
}

fn touched(
    timeline: &Timeline<'_>,
    unrolled: &Unrolled,
    space: &Space,
    place: usize,
    lists: &[Vec<Span>],
    absent: &Absence,
    ends: &Ends,
) -> Vec<Touch> {
    let Some(op) = unrolled.ops.get(place) else {
        return Vec::new();
    };
    let mut touches: Vec<Touch> = Vec::new();
    for pointer in timeline.pointers(op.seq) {
        // Memory made within the iteration is new at each of them: nothing of it is populated.
        if !timeline.is_live(pointer.alloc, OpSeq(u64::from(unrolled.seq_range().0))) {
            continue;
        }
        let end = ends.of(pointer, space.alloc_bytes(pointer.alloc));
        touches.extend(space.touches(Span {
            alloc: pointer.alloc,
            start: pointer.offset,
            end,
        }));
    }
    merge(&mut touches);
    for touch in &mut touches {
        touch.mask &= !absent.of(place, touch.chunk);
    }
    for span in lists.iter().flatten() {
        touches.extend(space.touches(*span));
    }
    merge(&mut touches);
    touches
}

/// Sorts touches, one per chunk, none empty.
pub fn merge(touches: &mut Vec<Touch>) {
    touches.sort_unstable();
    touches.dedup_by(|later, kept| {
        let same = later.chunk == kept.chunk;
        kept.mask |= if same { later.mask } else { 0 };
        same
    });
    touches.retain(|touch| touch.mask != 0);
}

/// Where the memory behind a pointer ends: at the next offset that any op points to.
struct Ends {
    /// Offsets pointed to, by allocation.
    offsets: Vec<Vec<u64>>,
}

impl Ends {
    fn new(timeline: &Timeline<'_>, unrolled: &Unrolled) -> Self {
        let mut offsets: Vec<Vec<u64>> = vec![Vec::new(); timeline.trace().allocs.len()];
        for op in &unrolled.ops {
            for pointer in timeline.pointers(op.seq) {
                if let Some(list) = offsets.get_mut(pointer.alloc.index()) {
                    list.push(pointer.offset);
                }
            }
        }
        for list in &mut offsets {
            list.sort_unstable();
            list.dedup();
        }
        Self { offsets }
    }

    fn of(&self, pointer: &Pointer, alloc_bytes: u64) -> u64 {
        if pointer.bytes > 0 {
            return pointer.offset.saturating_add(pointer.bytes);
        }
        let offsets = self
            .offsets
            .get(pointer.alloc.index())
            .map_or(&[][..], Vec::as_slice);
        let next = offsets.partition_point(|offset| *offset <= pointer.offset);
        offsets.get(next).copied().unwrap_or(alloc_bytes)
    }
}

/// Groups known to be on the host when an op began, in any iteration looked at.
struct Absence {
    by_place: Vec<Vec<Touch>>,
}

impl Absence {
    fn new(timeline: &Timeline<'_>, unrolled: &Unrolled, space: &Space) -> Self {
        let mut by_place = vec![Vec::new(); unrolled.ops.len()];
        let trace = timeline.trace();
        // Memory that the GPU may read in place proves nothing by not migrating.
        let remote = trace
            .faults
            .iter()
            .any(|fault| fault.kind == FaultKind::RemoteMap);
        if remote || trace.header.replayed_policy.is_some() {
            return Self { by_place };
        }
        let mut place_of = vec![u32::MAX; trace.ops.len()];
        for list in &unrolled.counterparts {
            for (place, seq) in (0_u32..).zip(list) {
                let slot = seq.and_then(|seq| place_of.get_mut(index(seq)));
                if let Some(slot) = slot {
                    *slot = place;
                }
            }
        }
        let ends = Ends::new(timeline, unrolled);
        let mut absent = at_first(timeline, space);
        for (seq, place) in (0_u32..).zip(place_of) {
            if let Some(list) = by_place.get_mut(index(place)) {
                note_absent(timeline, space, &ends, &absent, seq, list);
            }
            for migration in timeline.migrations_of(seq) {
                apply(space, &mut absent, migration);
            }
        }
        for list in &mut by_place {
            merge(list);
        }
        Self { by_place }
    }

    /// The groups of a chunk that were absent when the op at a place began.
    fn of(&self, place: usize, chunk: u32) -> u32 {
        let list = self.by_place.get(place).map_or(&[][..], Vec::as_slice);
        let found = list.binary_search_by_key(&chunk, |touch| touch.chunk);
        found
            .ok()
            .and_then(|at| list.get(at))
            .map_or(0, |touch| touch.mask)
    }
}

/// What is known to be on the host, or nowhere, until it first migrates or faults: a recorder with an
/// emulated card puts there what is allocated in its window; with recorded faults, or once the card
/// has turned over, a chunk that shows in no record was never touched.
fn at_first(timeline: &Timeline<'_>, space: &Space) -> Vec<u32> {
    let trace = timeline.trace();
    let mut absent = vec![0_u32; index(space.chunks())];
    let on_host = trace
        .header
        .emulated_card_bytes
        .is_some_and(|card| card > 0);
    let faults = trace.header.faults_recorded && !trace.faults.is_empty();
    if !(on_host || faults || has_turned(timeline)) || trace.totals.drops.cupti > 0 {
        return absent;
    }
    let begin = trace
        .marks
        .iter()
        .rev()
        .find(|mark| mark.kind == MarkKind::WindowBegin);
    let begin = begin.map_or(OpSeq(0), |mark| mark.at_op);
    for (alloc, entry) in (0..).map(AllocId).zip(&trace.allocs) {
        for chunk in space.chunks_of(alloc).filter(|_| entry.at_op >= begin) {
            if let Some(mask) = absent.get_mut(index(chunk)) {
                *mask = u32::MAX;
            }
        }
    }
    if on_host {
        return absent;
    }
    let faulted = trace
        .faults
        .iter()
        .map(|fault| (fault.alloc, fault.offset, 1));
    let moved = trace
        .migrations
        .iter()
        .map(|m| (m.alloc, m.offset, m.bytes));
    for (alloc, start, bytes) in faulted.chain(moved) {
        let end = start.saturating_add(bytes);
        for touch in space.touches(Span { alloc, start, end }) {
            if let Some(mask) = absent.get_mut(index(touch.chunk)) {
                *mask = 0;
            }
        }
    }
    absent
}

/// Whether the driver has evicted as much as the card holds: first in first out, all that was on the
/// card has left it once by then, and a chunk that never did was never there.
fn has_turned(timeline: &Timeline<'_>) -> bool {
    let trace = timeline.trace();
    let evicted = trace
        .migrations
        .iter()
        .filter(|m| m.cause == Cause::Eviction);
    let bytes: u64 = evicted.map(|migration| migration.bytes).sum();
    let card = trace.header.device_total_bytes;
    card > 0 && bytes >= card
}

fn note_absent(
    timeline: &Timeline<'_>,
    space: &Space,
    ends: &Ends,
    absent: &[u32],
    seq: u32,
    list: &mut Vec<Touch>,
) {
    for pointer in timeline.pointers(seq) {
        let end = ends.of(pointer, space.alloc_bytes(pointer.alloc));
        let span = Span {
            alloc: pointer.alloc,
            start: pointer.offset,
            end,
        };
        for touch in space.touches(span) {
            let mask = touch.mask & absent.get(index(touch.chunk)).copied().unwrap_or(0);
            if mask != 0 {
                list.push(Touch {
                    chunk: touch.chunk,
                    mask,
                });
            }
        }
    }
}

fn apply(space: &Space, absent: &mut [u32], migration: &Migration) {
    let start = migration.offset;
    let end = start.saturating_add(migration.bytes);
    for touch in space.touches(Span {
        alloc: AllocId(migration.alloc.0),
        start,
        end,
    }) {
        if let Some(mask) = absent.get_mut(index(touch.chunk)) {
            match migration.direction {
                Direction::HtoD => *mask &= !touch.mask,
                Direction::DtoH => *mask |= touch.mask,
                Direction::DtoD => {}
            }
        }
    }
}

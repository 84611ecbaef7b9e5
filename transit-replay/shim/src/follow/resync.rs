//! Finding the place again after ops were dropped, inserted or replaced: a bounded look ahead,
//! accepting only evidence that is hard to come by. The same pointers at the same offsets are
//! such evidence for one op; names alone need a run of ops, and only one place where it fits.

use transit_hook::observer::OpCall;

use super::landmarks;
use super::lane::{Lane, NONE};
use super::matching::{agreement, same_name, same_seen};
use super::side::{Taken, Track};

/// Positions looked ahead.
pub(crate) const LOOK_AHEAD: u32 = 64;
/// Positions looked ahead for the start of an iteration: beyond, only the anchor shows it.
const AHEAD_OF_START: u32 = 8;
/// Ops a lane may be out of step before it gives up and waits for the boundary.
pub(crate) const ASTRAY: u32 = 64;
/// Names in a row that prove a place.
const RUN: u32 = 4;
/// Names in a row that prove the place where the lane stopped (ops were only inserted).
const RUN_AT_HOLD: u32 = 2;
/// Positions beyond the one where the lane stopped at which one op with the very pointers of the
/// plan's is proof enough; further ahead it may be a twin.
const NEXT_DOOR: u32 = 2;
/// Longest run compared.
const RUN_LONGEST: u32 = 8;
/// How far around the expected position a better fitting op of the same name is looked for.
const NEAR_BEHIND: u32 = 4;
const NEAR_AHEAD: u32 = 8;

/// The position near `at` whose op has the very pointers of `call`, where those of `at` disagree:
/// ops of equal names in a row, one of them dropped or added.
pub(crate) fn nearby(track: Track<'_>, at: u32, call: &OpCall<'_>) -> Option<u32> {
    let mut found = None;
    let end = (at + NEAR_AHEAD + 1).min(track.length);
    for position in at.saturating_sub(NEAR_BEHIND)..end {
        let Some(record) = track.op(position) else {
            continue;
        };
        if position == at || !same_name(record, call) {
            continue;
        }
        if agreement(track.script, track.bindings, record, call).strong() {
            if found.is_some() {
                return None;
            }
            found = Some(position);
        }
    }
    found
}

/// How many of the lane's last ops, the present one included, fit the plan ending at `position`.
fn run(track: Track<'_>, lane: &Lane, position: u32) -> u32 {
    let mut length = 0;
    while length < RUN_LONGEST && length <= position {
        let record = track.op(position - length);
        let seen = lane.recent(length as usize);
        match (record, seen) {
            (Some(record), Some(seen)) if same_seen(record, seen) => length += 1,
            _ => break,
        }
    }
    length
}

/// The best place for the present op, if the evidence is enough.
fn place(track: Track<'_>, lane: &Lane, call: &OpCall<'_>, hold: u32) -> Option<u32> {
    let ahead = if lane.next >= track.length {
        AHEAD_OF_START
    } else {
        LOOK_AHEAD
    };
    let end = hold.saturating_add(ahead).min(track.length);
    let (mut best, mut best_rank, mut ties) = (NONE, (false, 0), 0_u32);
    for position in hold..end {
        let Some(record) = track.op(position) else {
            break;
        };
        if !same_name(record, call) {
            continue;
        }
        let run = run(track, lane, position);
        let agreement = agreement(track.script, track.bindings, record, call);
        let near = position <= hold + NEXT_DOOR || run >= RUN_AT_HOLD;
        let rank = (agreement.strong() && near, run);
        if rank > best_rank {
            (best, best_rank, ties) = (position, rank, 1);
        } else if rank == best_rank {
            ties += 1;
        }
    }
    let (strong, run) = best_rank;
    let at_hold = run >= RUN_AT_HOLD && best + 1 == hold + run;
    (best != NONE && (strong || (ties == 1 && (run >= RUN || at_hold)))).then_some(best)
}

/// Takes one op while out of step.
pub(crate) fn take(track: Track<'_>, lane: &mut Lane, call: &OpCall<'_>) -> Taken {
    lane.astray += 1;
    let wraps = lane.next >= track.length;
    let hold = if wraps { 0 } else { lane.next };
    let sure = landmarks::place(track, lane, call);
    if let Some(at) = sure.or_else(|| place(track, lane, call, hold)) {
        return Taken {
            started: wraps,
            ..placed(track, lane, call, at)
        };
    }
    if lane.astray >= ASTRAY {
        lane.seek();
        return Taken {
            gave_up: true,
            between: wraps,
            ..NOTHING
        };
    }
    NOTHING
}

/// Back in step, with this op at `at`.
pub(crate) fn placed(track: Track<'_>, lane: &mut Lane, call: &OpCall<'_>, at: u32) -> Taken {
    let record = track.op(at);
    lane.track(at + 1);
    lane.matched += 1;
    let agreement = record
        .map(|record| agreement(track.script, track.bindings, record, call))
        .unwrap_or_default();
    Taken {
        at,
        by_name: true,
        agreement,
        ..NOTHING
    }
}

/// No position for this op.
pub(crate) const NOTHING: Taken = Taken::nothing();

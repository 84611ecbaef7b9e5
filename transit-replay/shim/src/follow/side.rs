//! One lane taking one op, whatever the stream: the common step of the state machine, and what an
//! iteration's start on the main stream means for the others.

use transit_hook::observer::OpCall;

use super::bind::Bindings;
use super::landmarks;
use super::lane::{CLEAN_RUN, Lane, NONE, State};
use super::matching::{Agreement, agreement, plain, same_name};
use super::resync::{self, NOTHING};
use super::script::{OpRecord, Script};

/// Ops in a row that may be accepted without their names.
const ROLE_RUN: u32 = 3;

/// One plan stream with what is needed to compare ops with it.
#[derive(Clone, Copy)]
pub(crate) struct Track<'a> {
    pub(crate) script: &'a Script,
    pub(crate) bindings: &'a Bindings,
    pub(crate) stream: usize,
    ops: &'a [OpRecord],
    pub(crate) length: u32,
}

impl<'a> Track<'a> {
    /// Plan stream `stream`.
    pub(crate) fn new(script: &'a Script, bindings: &'a Bindings, stream: u32) -> Self {
        let stream = stream as usize;
        Self {
            script,
            bindings,
            stream,
            ops: script.ops_of(stream),
            length: script.length(stream),
        }
    }

    pub(crate) fn op(&self, at: u32) -> Option<&'a OpRecord> {
        self.ops.get(at as usize)
    }

    fn agreement(&self, record: &OpRecord, call: &OpCall<'_>) -> Agreement {
        agreement(self.script, self.bindings, record, call)
    }
}

/// What a lane made of an op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Its position in the iteration, or [`NONE`].
    pub(crate) at: u32,
    /// That is where it was expected.
    pub(crate) in_order: bool,
    /// It is the first of a new iteration that was matched.
    pub(crate) started: bool,
    /// The iteration was recognised by all its ops up to this one.
    pub(crate) anchored: bool,
    /// Its name is the plan's.
    pub(crate) by_name: bool,
    /// The lane fell out of step with it.
    pub(crate) strayed: bool,
    /// The lane gave up looking for its place ...
    pub(crate) gave_up: bool,
    /// ... between two iterations, where a job may do other things (evaluation, logging).
    pub(crate) between: bool,
    /// Accepted by position alone: nothing may be done for it.
    pub(crate) unproven: bool,
    /// How its pointers compare.
    pub(crate) agreement: Agreement,
}

impl Taken {
    /// No position.
    pub(crate) const fn nothing() -> Self {
        Self {
            at: NONE,
            in_order: false,
            started: false,
            anchored: false,
            by_name: false,
            strayed: false,
            gave_up: false,
            between: false,
            unproven: false,
            agreement: Agreement {
                same: 0,
                moved: 0,
                differ: 0,
                unknown: 0,
            },
        }
    }

    /// An iteration of the main stream, recognised by its first `next` ops.
    pub(crate) fn anchored(next: u32) -> Self {
        Self {
            at: next.saturating_sub(1),
            started: true,
            anchored: true,
            by_name: true,
            ..Self::nothing()
        }
    }
}

/// Takes the op that a lane in step expects next, with data that may be the plan's; nothing
/// happens to any other. This is what nearly every op of a job is.
#[inline(always)]
pub(crate) fn in_step(
    script: &Script,
    bindings: &Bindings,
    lane: &mut Lane,
    call: &OpCall<'_>,
) -> Option<Taken> {
    let (at, wraps) = lane.expected();
    let record = script.ops.get((lane.first_op + at) as usize)?;
    let next = lane.state == State::Tracking && at < lane.length && same_name(record, call);
    if !next {
        return None;
    }
    let taken = Taken {
        at,
        in_order: true,
        started: wraps,
        agreement: plain(script, bindings, record, call)?,
        ..NOTHING
    };
    Some(matched(lane, taken))
}

/// Takes one op while in step.
pub(crate) fn take(track: Track<'_>, lane: &mut Lane, call: &OpCall<'_>) -> Taken {
    if let Some(taken) = in_step(track.script, track.bindings, lane, call) {
        return taken;
    }
    let (at, wraps) = lane.expected();
    match track.op(at) {
        None => NOTHING,
        Some(record) if same_name(record, call) => {
            let agreement = track.agreement(record, call);
            elsewhere(track, lane, call, agreement, (at, wraps))
        }
        Some(record) => renamed_or_astray(track, lane, record, call, (at, wraps)),
    }
}

/// The name fits and the data does not: a neighbour of the same name may fit better, where one of
/// several like ops was dropped or added.
fn elsewhere(
    track: Track<'_>,
    lane: &mut Lane,
    call: &OpCall<'_>,
    agreement: Agreement,
    (at, wraps): (u32, bool),
) -> Taken {
    let is_late =
        |record: &OpRecord| same_name(record, call) && track.agreement(record, call).strong();
    if track.op(lane.late).is_some_and(is_late)
        && let Some(taken) = late(track, lane, call)
    {
        return taken;
    }
    if lane.watch > 0
        && let Some(found) = landmarks::place(track, lane, call)
        && found != at
    {
        return Taken {
            started: wraps,
            ..resync::placed(track, lane, call, found)
        };
    }
    // One better neighbour may be a twin; two in a row at the same distance are a proof.
    let better = resync::nearby(track, at, call);
    let shift = better.map_or(0, |better| i64::from(better) - i64::from(at));
    let proven = shift != 0 && shift == lane.shift;
    let taken = match better {
        Some(at) if proven => {
            lane.watch = track.length;
            let agreement = Agreement {
                same: 1,
                ..Agreement::default()
            };
            Taken {
                at,
                started: wraps,
                agreement,
                ..NOTHING
            }
        }
        _ => Taken {
            at,
            started: wraps,
            unproven: shift != 0,
            agreement,
            ..NOTHING
        },
    };
    let taken = matched(lane, taken);
    lane.shift = if proven { 0 } else { shift };
    taken
}

fn renamed_or_astray(
    track: Track<'_>,
    lane: &mut Lane,
    record: &OpRecord,
    call: &OpCall<'_>,
    (at, wraps): (u32, bool),
) -> Taken {
    if let Some(taken) = late(track, lane, call) {
        return taken;
    }
    let held = if lane.tentative {
        at.saturating_sub(1)
    } else {
        at
    };
    if lane.tentative && track.op(held).is_some_and(|record| same_name(record, call)) {
        // What was taken for this op by its role had been put before it.
        let agreement = track.op(held).map(|record| track.agreement(record, call));
        let agreement = agreement.unwrap_or_default();
        return matched(
            lane,
            Taken {
                at: held,
                agreement,
                ..NOTHING
            },
        );
    }
    let agreement = track.agreement(record, call);
    let alike = record.kind == call.kind && record.pointers as usize == call.pointers.len();
    if alike && lane.role_run < ROLE_RUN && (agreement.strong() || (agreement.plain() && !wraps)) {
        lane.next = at + 1;
        lane.wrapped |= wraps;
        lane.tentative = true;
        lane.role_run += 1;
        let unproven = !agreement.strong();
        return Taken {
            at,
            started: wraps,
            unproven,
            agreement,
            ..NOTHING
        };
    }
    lane.watch = track.length;
    lane.stray(if wraps { track.length } else { held });
    Taken {
        strayed: true,
        ..resync::take(track, lane, call)
    }
}

#[inline(always)]
fn matched(lane: &mut Lane, taken: Taken) -> Taken {
    lane.next = taken.at + 1;
    lane.wrapped |= taken.started;
    lane.tentative = false;
    lane.role_run = 0;
    lane.matched += 1;
    lane.shift = 0;
    lane.clean = lane.clean.saturating_add(1);
    if lane.clean >= CLEAN_RUN {
        lane.astray = 0;
    }
    if taken.started {
        lane.late = NONE;
    }
    Taken {
        by_name: true,
        ..taken
    }
}

/// An op of the iteration before, come after the main stream went on to the next.
fn late(track: Track<'_>, lane: &mut Lane, call: &OpCall<'_>) -> Option<Taken> {
    let at = lane.late;
    let record = track.op(at)?;
    if !same_name(record, call) {
        return None;
    }
    lane.late = at + 1;
    lane.matched += 1;
    let agreement = track.agreement(record, call);
    Some(Taken {
        at,
        by_name: true,
        agreement,
        ..NOTHING
    })
}

/// The main stream begins an iteration: `lane`, another stream, is expected at its own first op,
/// unless it had gone there before.
pub(crate) fn main_started(lane: &mut Lane, length: u32) {
    lane.late = NONE;
    match lane.state {
        State::Tracking if lane.next >= length => {}
        State::Tracking if lane.wrapped && lane.next <= length / 2 => {}
        State::Tracking => {
            let late = lane.next;
            lane.track(length);
            lane.late = late;
        }
        State::Seeking | State::Resync => lane.stray(length),
    }
    lane.wrapped = false;
}

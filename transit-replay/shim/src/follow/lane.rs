//! One live stream as the follower sees it: which plan stream it stands for, where it is in the
//! iteration, and its last few ops, kept only while the place is being sought.

use transit_format::trace::model::{OpKind, Stream};
use transit_hook::observer::OpCall;

use super::script::{OpRecord, Script};
use super::stretch::Stretch;

/// Ops a lane remembers; bounds the anchor window.
pub(crate) const RING: usize = 128;
/// Live streams followed; ops of further streams are counted and left alone.
pub(crate) const LANES: usize = 128;
/// Ops in step in a row after which a lane is believed to be in the right place.
pub(crate) const CLEAN_RUN: u64 = 16;
/// Not bound, or no position.
pub(crate) const NONE: u32 = u32::MAX;

/// An op as remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) name_hash: u64,
    pub(crate) kind: OpKind,
    pub(crate) pointers: u32,
}

impl Seen {
    /// What would be remembered of a plan's op.
    pub(crate) fn of_record(record: &OpRecord) -> Self {
        Self {
            name_hash: record.name_hash,
            kind: record.kind,
            pointers: record.pointers,
        }
    }

    /// What is remembered of `call`.
    pub(crate) fn of(call: &OpCall<'_>) -> Self {
        let pointers = u32::try_from(call.pointers.len()).unwrap_or(u32::MAX);
        Self {
            name_hash: call.name_hash,
            kind: call.kind,
            pointers,
        }
    }
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing known: seeking the start of an iteration.
    #[default]
    Seeking,
    /// In step with the plan.
    Tracking,
    /// Out of step: looking a bounded way ahead.
    Resync,
}

/// One live stream.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Its identity, once told.
    pub(crate) stream: Option<Stream>,
    /// Plan stream it stands for, or [`NONE`].
    pub(crate) plan: u32,
    /// That stream's first op among all ops of the script, and how many it has.
    pub(crate) first_op: u32,
    pub(crate) length: u32,
    pub(crate) state: State,
    /// Position of the op expected next; the stream's length, or more, means "the first op of the
    /// next iteration".
    pub(crate) next: u32,
    /// Side streams: the position given up at the main stream's last iteration start, whose
    /// remaining ops may still arrive late. [`NONE`] if all had come.
    pub(crate) late: u32,
    /// The op just taken was accepted without its name: its position is `next - 1`.
    pub(crate) tentative: bool,
    /// How far from its expected position the last op would have fitted better; 0 if it fitted.
    pub(crate) shift: i64,
    /// Ops accepted by role in a row.
    pub(crate) role_run: u32,
    /// Ops out of step since the lane was last in step for [`CLEAN_RUN`] ops.
    pub(crate) astray: u32,
    /// Ops in step in a row.
    pub(crate) clean: u64,
    /// Ops matched by name since it was bound: a stream is confirmed by its ops.
    pub(crate) matched: u64,
    /// Ops for which an iteration's start is watched for although the lane is in step: it fell
    /// out of step lately and may have found a wrong place.
    pub(crate) watch: u32,
    /// The landmark last seen while the place was in doubt, or [`NONE`], and at which op.
    pub(crate) landmark: (u32, usize),
    /// Ops taken of which only [`Self::next`] tells yet.
    pub(super) stretch: Stretch,
    /// Wrapped to the next iteration since the main stream's last start.
    pub(crate) wrapped: bool,
    ring: [Seen; RING],
    /// Ops remembered since it was bound; the newest lies before this place, modulo the ring.
    pub(crate) remembered: usize,
}

impl Lane {
    /// A stream nothing is known of.
    pub(crate) fn empty() -> Self {
        Self {
            stream: None,
            plan: NONE,
            first_op: 0,
            length: 0,
            state: State::Seeking,
            next: 0,
            late: NONE,
            tentative: false,
            shift: 0,
            role_run: 0,
            astray: 0,
            clean: 0,
            matched: 0,
            watch: 0,
            landmark: (NONE, 0),
            stretch: Stretch::default(),
            wrapped: false,
            ring: [Seen::default(); RING],
            remembered: 0,
        }
    }

    /// Stands for plan stream `plan` of `script` from now on, its place unknown.
    pub(crate) fn bind(&mut self, script: &Script, plan: u32) {
        let record = script.streams.get(plan as usize).copied();
        let record = record.unwrap_or_default();
        (self.first_op, self.length) = (record.first_op, record.ops);
        self.plan = plan;
        self.matched = 0;
        self.watch = 0;
        self.remembered = 0;
        self.landmark = (NONE, 0);
        self.seek();
    }

    /// Gives the place up: only an iteration's start brings it back.
    pub(crate) fn seek(&mut self) {
        self.state = State::Seeking;
        self.late = NONE;
        self.tentative = false;
        self.role_run = 0;
        self.astray = 0;
    }

    /// In step; `next` is the position expected next.
    pub(crate) fn track(&mut self, next: u32) {
        self.state = State::Tracking;
        self.next = next;
        self.tentative = false;
        self.role_run = 0;
    }

    /// Out of step at `next`.
    pub(crate) fn stray(&mut self, next: u32) {
        self.state = State::Resync;
        self.clean = 0;
        self.next = next;
        self.tentative = false;
        self.role_run = 0;
    }

    /// The position of the op expected next, and whether it begins an iteration.
    #[inline]
    pub(crate) fn expected(&self) -> (u32, bool) {
        if self.next < self.length {
            (self.next, false)
        } else {
            (0, true)
        }
    }

    /// Remembers `op`.
    pub(crate) fn remember(&mut self, op: Seen) {
        if let Some(slot) = self.ring.get_mut(self.remembered % RING) {
            *slot = op;
        }
        self.remembered += 1;
    }

    /// The op remembered `back` ops ago (0 is the last).
    pub(crate) fn recent(&self, back: usize) -> Option<Seen> {
        if back >= self.remembered.min(RING) {
            return None;
        }
        self.ring.get((self.remembered - 1 - back) % RING).copied()
    }
}

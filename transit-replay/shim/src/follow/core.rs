//! The follower: all lanes, the phase of the main stream, and what it allows.

use std::sync::Arc;

use transit_format::trace::model::Stream;
use transit_hook::observer::{OpCall, StreamInfo};

use super::anchor;
use super::bind::Bindings;
use super::landmarks;
use super::lane::{LANES, Lane, NONE, Seen, State};
use super::resync;
use super::script::{Script, StreamRecord};
use super::side::{self, Taken, Track};
use super::votes::Votes;

/// Times in a row the place may be lost within an iteration before the follower gives up.
pub(crate) const FAILURES: u32 = 8;

/// Where the main stream stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No iteration has begun.
    #[default]
    Prologue,
    /// In step.
    Tracking,
    /// Out of step, waiting for the boundary.
    Diverged,
    /// Given up: no steps any more, confirmed placements stay.
    Lost,
}

impl Phase {
    /// The word used in messages and statistics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prologue => "prologue",
            Self::Tracking => "tracking",
            Self::Diverged => "diverged",
            Self::Lost => "lost",
        }
    }
}

/// What to do about one op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The plan's op whose steps belong before this op, as its place among all ops of the script.
    pub(crate) steps_of: Option<u32>,
    /// The op's pointers are not all the plan's: the steps' ranges lie elsewhere.
    pub(crate) moved: bool,
    /// An iteration begins with this op (or was recognised by it).
    pub(crate) iteration: bool,
    /// This op is at or just after the midpoint of a steady iteration.
    pub(crate) midpoint: bool,
    /// This is the last op of an iteration that has votes to settle; `Some(true)` if it was seen
    /// from its first op.
    pub(crate) settle: Option<bool>,
    /// The main stream is in step.
    pub(crate) tracking: bool,
    /// The op is one of the plan's, on the data the plan has it on or with steps of its own, and
    /// the plan is known to be this job's: it knows what the op needs.
    pub(crate) followed: bool,
    /// The op came where it was expected: no step before it was passed over.
    pub(crate) in_order: bool,
    /// With this op begins an iteration that follows a completed one: a plan with an emulated card
    /// may take over.
    pub(crate) handover: bool,
}

/// Counters for the exit line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Ops seen.
    pub(crate) ops: u64,
    /// Ops seen since the first iteration was recognised.
    pub(crate) ops_since_start: u64,
    /// Of those, matched by name.
    pub(crate) by_name: u64,
    /// Matched by role.
    pub(crate) by_role: u64,
    /// Matched ops with pointers other than the plan's.
    pub(crate) elsewhere: u64,
    /// Iterations recognised.
    pub(crate) iterations: u64,
    /// Iterations followed to their last op.
    pub(crate) completed: u64,
    /// Times a stream fell out of step.
    pub(crate) strays: u64,
    /// Of those on the main stream, not mended by looking ahead: the boundary was waited for.
    pub(crate) divergences: u64,
    /// Ops on streams beyond those that can be followed.
    pub(crate) unfollowed: u64,
    /// Steps not handed out because the op's pointers were not the plan's.
    pub(crate) withheld: u64,
}

/// An iteration's evidence that the plan is this job's.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Main-stream ops.
    ops: u32,
    /// Those that were matched.
    matched: u32,
    /// Those that were matched and are landmarks of the plan's, in the plan's order ...
    landmarks: u32,
    /// ... and those that were not in order: parts of the plan's iteration repeated.
    disorder: u32,
    /// Position of the farthest landmark.
    farthest: u32,
}

impl Share {
    /// A landmark was matched at `at`.
    fn landmark(&mut self, at: u32) {
        if at > self.farthest {
            self.farthest = at;
            self.landmarks = self.landmarks.saturating_add(1);
        } else {
            self.disorder = self.disorder.saturating_add(1);
        }
    }

    /// Whether the iteration proves that the plan, with `length` ops, is this job's.
    fn proves(self, length: u32) -> bool {
        let matched = self.percent_of(self.matched, length) >= PROVEN_PERCENT;
        let landmarks = self.percent_of(self.landmarks, length) >= LANDMARKS_PERCENT;
        (matched || landmarks) && self.disorder <= self.landmarks / ORDERLY
    }

    /// Whether it shows that the plan is another job's after all.
    fn disproves(self, length: u32) -> bool {
        self.percent_of(self.matched, length) < DISPROVEN_PERCENT && !self.proves(length)
    }

    fn percent_of(self, part: u32, whole: u32) -> u32 {
        let percent = u64::from(part) * 100 / u64::from(self.ops.max(whole).max(1));
        u32::try_from(percent).unwrap_or(u32::MAX)
    }
}

/// Follows one process through its plan.
#[derive(Debug)]
pub(crate) struct Follower {
    script: Arc<Script>,
    bindings: Arc<Bindings>,
    lanes: Box<[Lane]>,
    /// The lane that stands for each plan stream, or [`NONE`].
    lane_of: Box<[u32]>,
    phase: Phase,
    failures: u32,
    /// The present iteration was in step from its first op on.
    whole: bool,
    /// What the main stream's present iteration has shown.
    share: Share,
    /// An iteration was followed nearly whole: the plan is this job's.
    proven: bool,
    midpoint_due: bool,
    settle_rounds: u32,
    /// Votes of the present iteration.
    pub(crate) votes: Votes,
    /// For the exit line, but for ops in stretches.
    counters: Counters,
}

/// Share of an iteration's ops that must be matched before any step is handed out: a job of the
/// same kernels in other numbers is another job ...
const PROVEN_PERCENT: u32 = 90;
/// ... and the share below which it is one after all. Between them lie iterations with logging.
const DISPROVEN_PERCENT: u32 = 50;
/// Share of an iteration's ops that prove the plan as well if they are landmarks: the same kernels on
/// the same addresses, each known from only one op. Where experts' ops come in other numbers each
/// time, no more than the ops between them are alike.
const LANDMARKS_PERCENT: u32 = 10;
/// Landmarks in order to one out of order: more of those, and parts of the iteration are repeated.
const ORDERLY: u32 = 4;

/// Iterations whose votes may leave something open before the follower stops counting votes.
const SETTLE_ROUNDS: u32 = 4;

impl Follower {
    /// A follower of `script`; all its memory is reserved here.
    pub(crate) fn new(script: Arc<Script>, bindings: Arc<Bindings>) -> Self {
        let votes = Votes::new(script.allocs.len());
        let lane_of = vec![NONE; script.streams.len()].into_boxed_slice();
        Self {
            script,
            bindings,
            lanes: (0..LANES).map(|_| Lane::empty()).collect(),
            lane_of,
            phase: Phase::Prologue,
            failures: 0,
            whole: false,
            share: Share::default(),
            proven: false,
            midpoint_due: false,
            settle_rounds: 0,
            votes,
            counters: Counters::default(),
        }
    }

    /// Where the main stream stands. Until an iteration has proved the plan to be this job's, what
    /// looks like one is still prologue.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase {
            Phase::Tracking if !self.proven => Phase::Prologue,
            phase => phase,
        }
    }

    /// A stream of the job, told before its first op.
    pub(crate) fn stream(&mut self, info: &StreamInfo) {
        let Some(lane) = self.lanes.get_mut(info.id.index()) else {
            return;
        };
        let stream = Stream {
            kind: info.kind,
            device: info.device,
            turn: info.turn,
        };
        lane.stream = Some(stream);
        let one_device = one_device(&self.script.streams);
        for (plan, record) in (0_u32..).zip(&self.script.streams) {
            let device = if one_device {
                record.stream.device
            } else {
                stream.device
            };
            let same = record.stream == Stream { device, ..stream };
            if let Some(slot) = self.lane_of.get_mut(plan as usize)
                && same
                && *slot == NONE
            {
                *slot = info.id.0;
                lane.bind(&self.script, plan);
                return;
            }
        }
    }

    /// What was counted so far.
    pub(crate) fn counters(&self) -> Counters {
        let stretched = self.lanes.iter().map(|lane| lane.stretched().len() as u64);
        let stretched: u64 = stretched.sum();
        Counters {
            ops: self.counters.ops + stretched,
            ops_since_start: self.counters.ops_since_start + stretched,
            by_name: self.counters.by_name + stretched,
            ..self.counters
        }
    }

    /// An op is about to be issued: what to do about it is put down in `verdict`. Nothing is if it is
    /// followed, in order, and that is all there is to say, unless `says_all`.
    #[inline]
    pub(crate) fn op(&mut self, call: &OpCall<'_>, says_all: bool, verdict: &mut Option<Verdict>) {
        let goes_on = match self.lanes.get_mut(call.stream.index()) {
            Some(lane) if !call.capturing => lane.goes_on(&self.script, &self.bindings, call),
            _ => false,
        };
        let followed = self.phase == Phase::Tracking && self.proven;
        if !goes_on || !followed || says_all {
            *verdict = Some(self.verdict(call, goes_on));
        }
    }

    #[inline(never)]
    fn verdict(&mut self, call: &OpCall<'_>, goes_on: bool) -> Verdict {
        let tracking = self.phase == Phase::Tracking;
        let mut verdict = Verdict {
            tracking,
            followed: goes_on && tracking && self.proven,
            in_order: goes_on,
            ..Verdict::default()
        };
        // What is captured does not run now; the graph it ends up in is an op of its own.
        if !goes_on && !call.capturing {
            self.alone(call, &mut verdict);
        }
        verdict
    }

    /// An op that belongs to no stretch, and may be followed by one.
    fn alone(&mut self, call: &OpCall<'_>, verdict: &mut Verdict) {
        let stream = call.stream.index();
        if self.lanes.get(stream).is_some_and(Lane::in_stretch) {
            self.end_stretch(stream);
        }
        self.counters.ops += 1;
        if self.phase == Phase::Lost {
            return;
        }
        if self.phase != Phase::Prologue {
            self.counters.ops_since_start += 1;
        }
        let Some(lane) = self.lanes.get_mut(call.stream.index()) else {
            self.counters.unfollowed += 1;
            return;
        };
        lane.remember(Seen::of(call));
        let (stream, first_op) = (lane.plan, lane.first_op);
        let main = stream == self.script.shape.main_stream.0;
        if (lane.watch == 0 || !main)
            && let Some(taken) = side::in_step(&self.script, &self.bindings, lane, call)
        {
            self.share.ops = self.share.ops.saturating_add(u32::from(main));
            self.judge(call, taken, main, first_op + taken.at, verdict);
            self.begin_stretch(call.stream.index(), main);
        } else {
            self.otherwise(call, stream, verdict);
        }
    }

    /// Makes good what was left open of a lane's stretch.
    fn end_stretch(&mut self, stream: usize) {
        let Some(lane) = self.lanes.get_mut(stream) else {
            return;
        };
        let (first, taken) = lane.end_stretch(&self.script);
        let count = taken.len() as u64;
        self.counters.ops += count;
        self.counters.ops_since_start += count;
        self.counters.by_name += count;
        if lane.plan != self.script.shape.main_stream.0 {
            return;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.share.ops = self.share.ops.saturating_add(count);
        self.share.matched = self.share.matched.saturating_add(count);
        for (at, record) in (first..).zip(taken) {
            if record.landmark != 0 {
                self.share.landmark(at);
            }
        }
    }

    fn end_stretches(&mut self) {
        (0..self.lanes.len()).for_each(|stream| self.end_stretch(stream));
    }

    /// The op was taken in step: those behind it may be a stretch, up to the midpoint if that is due.
    fn begin_stretch(&mut self, stream: usize, main: bool) {
        if self.phase != Phase::Tracking {
            return;
        }
        let midpoint = self.midpoint_due && self.proven && main;
        let limit = if midpoint {
            self.script.shape.midpoint.0
        } else {
            u32::MAX
        };
        if let Some(lane) = self.lanes.get_mut(stream) {
            lane.begin_stretch(&self.script, limit);
        }
    }

    /// An op that is not simply the next one.
    #[cold]
    fn otherwise(&mut self, call: &OpCall<'_>, stream: u32, verdict: &mut Verdict) {
        let lane = self.lanes.get(call.stream.index());
        let main = self.script.shape.main_stream.0;
        let (taken, stream) = if lane.is_none_or(|lane| lane.state == State::Seeking) {
            (self.seek(call), main)
        } else {
            (self.take(call, stream), stream)
        };
        self.counters.strays += u64::from(taken.strayed);
        verdict.tracking = self.phase == Phase::Tracking;
        if let Some(place) = self.script.place_of(stream as usize, taken.at) {
            self.judge(call, taken, stream == main, place, verdict);
        }
    }

    /// An op on a lane with a place, on plan stream `stream`.
    #[inline(never)]
    fn take(&mut self, call: &OpCall<'_>, stream: u32) -> Taken {
        let Some(lane) = self.lanes.get_mut(call.stream.index()) else {
            return Taken::nothing();
        };
        let track = Track::new(&self.script, &self.bindings, stream);
        let (expected, _) = lane.expected();
        let mut taken = if lane.state == State::Tracking {
            side::take(track, lane, call)
        } else {
            resync::take(track, lane, call)
        };
        taken.in_order = taken.at == expected;
        if stream == self.script.shape.main_stream.0 {
            self.share.ops = self.share.ops.saturating_add(1);
            if taken.at == NONE || lane.watch > 0 {
                return self.doubtful(call, taken);
            }
        }
        taken
    }

    /// The main lane has no place for this op, or had none lately: an iteration's start overrules
    /// whatever place it has.
    #[inline(never)]
    fn doubtful(&mut self, call: &OpCall<'_>, taken: Taken) -> Taken {
        let Some(lane) = self.lanes.get_mut(call.stream.index()) else {
            return Taken::nothing();
        };
        lane.watch = lane.watch.saturating_sub(1);
        if taken.gave_up {
            self.gave_up(taken);
            return Taken::nothing();
        }
        let trusted = lane.state != State::Tracking || self.script.anchor.unique;
        if trusted && let Some(next) = anchor::main_start(&self.script, lane) {
            lane.watch = 0;
            if lane.state != State::Tracking || lane.next != next {
                lane.track(next);
                return Taken::anchored(next);
            }
        }
        taken
    }

    fn gave_up(&mut self, taken: Taken) {
        self.whole = false;
        self.phase = Phase::Diverged;
        if !taken.between {
            self.counters.divergences += 1;
            self.failures += 1;
        }
        if self.failures >= FAILURES {
            self.end_stretches();
            self.phase = Phase::Lost;
        }
    }

    /// An op on a lane without a place: the main stream's, if an iteration begins with it.
    fn seek(&mut self, call: &OpCall<'_>) -> Taken {
        let Some(lane) = self.lanes.get_mut(call.stream.index()) else {
            return Taken::nothing();
        };
        let main = self.script.main_stream();
        let on_main = lane.plan as usize == main;
        if on_main && let Some(next) = anchor::main_start(&self.script, lane) {
            lane.matched += u64::from(next);
            lane.track(next);
            return Taken::anchored(next);
        }
        if on_main && self.phase == Phase::Diverged {
            return self.sight(call);
        }
        // Before the first iteration only the main stream is sought: a few memsets prove nothing.
        if lane.matched > 0 || (on_main && self.phase == Phase::Prologue) {
            return Taken::nothing();
        }
        self.adopt(call, main)
    }

    /// An op on a lane that stands for no stream for certain: another of the plan's, if it begins with
    /// the lane's last ops.
    #[cold]
    fn adopt(&mut self, call: &OpCall<'_>, main: usize) -> Taken {
        let id = call.stream.0;
        let Some(lane) = self.lanes.get(call.stream.index()) else {
            return Taken::nothing();
        };
        let sought = |stream: usize| self.phase != Phase::Prologue || stream == main;
        let free = |stream: usize| match self.lane_of.get(stream) {
            Some(&NONE) | None => sought(stream),
            Some(&other) => {
                let unproven = self
                    .lanes
                    .get(other as usize)
                    .is_none_or(|lane| lane.matched == 0);
                unproven && sought(stream)
            }
        };
        let Some((plan, next)) = anchor::adopted(&self.script, lane, free) else {
            return Taken::nothing();
        };
        self.rebind_lane(id, plan);
        if let Some(lane) = self.lanes.get_mut(call.stream.index()) {
            lane.matched = u64::from(next);
            lane.track(next);
        }
        if plan as usize == main {
            Taken::anchored(next)
        } else {
            Taken::nothing()
        }
    }

    /// An op of the main stream after its place was given up: a landmark brings it back within the
    /// iteration.
    #[inline(never)]
    fn sight(&mut self, call: &OpCall<'_>) -> Taken {
        let Some(lane) = self.lanes.get_mut(call.stream.index()) else {
            return Taken::nothing();
        };
        let track = Track::new(&self.script, &self.bindings, lane.plan);
        let expected = lane.next;
        let Some(at) = landmarks::place(track, lane, call) else {
            return Taken::nothing();
        };
        self.phase = Phase::Tracking;
        self.failures = self.failures.saturating_sub(1);
        Taken {
            in_order: at == expected,
            ..resync::placed(track, lane, call, at)
        }
    }

    /// Lane `id` stands for plan stream `plan` from now on; whoever did before does not.
    fn rebind_lane(&mut self, id: u32, plan: u32) {
        self.end_stretches();
        for slot in &mut self.lane_of {
            if *slot == id {
                *slot = NONE;
            }
        }
        let Some(slot) = self.lane_of.get_mut(plan as usize) else {
            return;
        };
        let before = std::mem::replace(slot, id);
        if let Some(lane) = self.lanes.get_mut(before as usize) {
            lane.bind(&self.script, NONE);
        }
        if let Some(lane) = self.lanes.get_mut(id as usize) {
            lane.bind(&self.script, plan);
        }
    }

    /// Counts an op that was taken for the plan's at `place`, hears its pointers and picks its steps.
    /// Inlined where it counts: much of it falls away for an op that is simply the next one.
    #[inline(always)]
    fn judge(
        &mut self,
        call: &OpCall<'_>,
        taken: Taken,
        main: bool,
        place: u32,
        verdict: &mut Verdict,
    ) {
        let plain = taken.agreement.plain();
        verdict.in_order = taken.in_order;
        verdict.moved = !plain;
        if main && taken.started {
            verdict.iteration = true;
            verdict.handover = taken.at == 0 && self.proven;
            self.start_iteration(taken.at, taken.anchored);
            verdict.tracking = true;
        }
        let directed = verdict.tracking && self.proven;
        self.counters.by_name += u64::from(taken.by_name);
        self.counters.by_role += u64::from(!taken.by_name);
        self.counters.elsewhere += u64::from(!plain);
        let Some(record) = self.script.ops.get(place as usize) else {
            return;
        };
        if main {
            self.share.matched = self.share.matched.saturating_add(1);
            if taken.by_name && record.landmark & taken.agreement.same != 0 {
                self.share.landmark(taken.at);
            }
        }
        verdict.followed = directed && (plain || record.steps > 0);
        // A job's first iteration is like no other: its optimizer state and its allocator's blocks
        // come to be in it.
        let votes = self.counters.iterations > 1 && self.bindings.unconfirmed();
        if votes && taken.by_name {
            self.votes.hear(&self.script, record, call);
        }
        if record.steps > 0 && directed && !call.excluded {
            if taken.unproven {
                self.counters.withheld += u64::from(record.steps);
            } else {
                verdict.steps_of = Some(place);
            }
        }
        if self.midpoint_due && main && self.proven && taken.at >= self.script.shape.midpoint.0 {
            self.midpoint_due = false;
            verdict.midpoint = true;
        }
        if record.last && main {
            self.complete();
            verdict.settle = votes.then_some(self.whole);
        }
    }

    /// The last op of an iteration: was it this plan's?
    fn complete(&mut self) {
        self.counters.completed += 1;
        self.failures = 0;
        let length = self.script.length(self.script.main_stream());
        self.proven = self.share.proves(length) || self.proven && !self.share.disproves(length);
    }

    /// The main stream begins an iteration with its op `at`, which was recognised by all up to it if
    /// it is `anchored`.
    #[cold]
    fn start_iteration(&mut self, at: u32, anchored: bool) {
        let matched = if anchored { at } else { 0 };
        self.share = Share {
            ops: matched + 1,
            // This op is counted by `judge`.
            matched,
            ..Share::default()
        };
        self.midpoint_due = self.counters.iterations > 0;
        self.counters.iterations += 1;
        self.phase = Phase::Tracking;
        self.whole = at == 0;
        if self.bindings.unconfirmed() {
            self.votes.clear();
        }
        for stream in 0..self.lane_of.len() {
            if stream == self.script.main_stream() {
                continue;
            }
            let id = self.lane_of.get(stream).copied().unwrap_or(NONE);
            self.end_stretch(id as usize);
            if let Some(lane) = self.lanes.get_mut(id as usize) {
                side::main_started(lane, self.script.length(stream));
            }
        }
    }

    /// [`Self::op`] without stretches: what it must agree with.
    #[cfg(test)]
    pub(super) fn op_by_itself(&mut self, call: &OpCall<'_>) -> Verdict {
        let verdict = self.verdict(call, false);
        self.end_stretches();
        verdict
    }

    /// The votes were settled; `settled` if nothing is left open.
    pub(crate) fn votes_settled(&mut self, settled: bool) {
        self.settle_rounds += 1;
        if settled || self.settle_rounds >= SETTLE_ROUNDS {
            self.settle_rounds = 0;
            self.bindings.mark_settled();
        }
    }
}

/// Whether all of the plan's streams are of one device: then they stand for streams of any device
/// (a rank sees its own GPU under another number).
fn one_device(streams: &[StreamRecord]) -> bool {
    let first = streams.first().map(|record| record.stream.device);
    streams
        .iter()
        .all(|record| Some(record.stream.device) == first)
}

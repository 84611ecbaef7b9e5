//! Which ops CUPTI is asked to time: all of them, or with `TRANSIT_BURSTS` some. A record of a launch
//! costs the job 1.5 to 2.5 us of processor time, that of a graph's node 0.3 to 1.5 us of the step
//! (H200, driver 580.159.04, CUPTI 13.0, 2026-12-01); turned off, launches cost what they do without
//! it within 0.5 us, and turning takes 5 to 10 us from any thread. A step that the device decides
//! hides the cost of launches, one that the processor decides pays it. So bursts cost [`SHARE`] of the
//! time at most.
//!
//! An experiment, and off: of about 45 recordings in bursts on that GPU three ended with signal 11 in
//! the midst of the job, and no other recording did. Turning the records of kernels alone from another
//! thread, 800 times beside 1.8 million launches, harmed nothing, nor did turning all three kinds from
//! the launching thread, 72 times; what was not tried apart is turning those of sets and copies while
//! one is under way.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use transit_format::ids::Nanos;
use transit_format::trace::model::OpKind;

use crate::wire::OpRecord;

/// One part in this many of the job's time: 2 %.
const SHARE: u32 = 50;
/// A burst's worth, which is also what a recording begins with: 5,000 launches, some steps of a small
/// model and a good part of one of a large model.
const BURST_NS: i64 = 12_500_000;
/// Cost of a launch's record.
const LAUNCH_NS: u64 = 2_500;
/// Cost of a graph node's record.
const NODE_NS: u64 = 1_000;

/// Whether CUPTI has a record of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It was asked for one.
    Yes,
    /// It was being turned on or off while the op was issued.
    Doubtful,
    /// It was not asked.
    No,
}

/// Where CUPTI's records stand: off, being turned on, on, being turned off, off, ...
#[derive(Debug)]
pub(crate) struct Turns {
    state: AtomicU32,
    /// When the last turn was over, on the clock that ops are stamped with.
    since_ns: AtomicU64,
}

impl Turns {
    const ON: u32 = 2;
    /// The bits of the state that say where records stand.
    const CYCLE: u64 = 3;

    /// Records are off, or nobody will ever turn them and every op counts as asked for.
    pub(crate) fn new(asked: bool) -> Self {
        Self {
            state: AtomicU32::new(if asked { Self::ON } else { 0 }),
            since_ns: AtomicU64::new(0),
        }
    }

    /// A time that is after the last turn, as stamps tell it.
    pub(crate) fn after_last_ns(&self) -> u64 {
        self.since_ns
            .load(Ordering::Relaxed)
            .saturating_add(Self::CYCLE + 1)
    }

    /// The time at which an op is about to be issued with where records stand, in its lowest bits. The
    /// time alone would not tell: two readings may differ by more than lies between two events, on
    /// two threads or before and after [`IssueClock::compare`](crate::clock::IssueClock::compare).
    #[inline]
    pub(crate) fn stamp(&self, raw_ns: u64) -> u64 {
        let state = self.state.load(Ordering::Acquire);
        raw_ns & !Self::CYCLE | u64::from(state) & Self::CYCLE
    }

    /// Whether CUPTI was asked for an op that was issued at the time `stamped` and whose call has
    /// returned, and that time.
    #[inline]
    pub(crate) fn asked(&self, stamped: u64) -> (Asked, u64) {
        let (then, raw_ns) = (stamped & Self::CYCLE, stamped & !Self::CYCLE);
        let state = self.state.load(Ordering::Acquire);
        let turned = then != u64::from(state) & Self::CYCLE;
        // The times tell of as many turns as make a cycle: records are on or off for longer than
        // clocks differ.
        let asked = if turned || state % 2 == 1 || raw_ns <= self.since_ns.load(Ordering::Relaxed) {
            Asked::Doubtful
        } else if state % 4 == Self::ON {
            Asked::Yes
        } else {
            Asked::No
        };
        (asked, raw_ns)
    }

    /// Turns records on or off; one thread at a time. An op that sees any effect of `turn` sees that
    /// it had begun. `now` reads the clock that ops are stamped with.
    pub(crate) fn turn(&self, now: impl FnOnce() -> u64, turn: impl FnOnce()) {
        self.state.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        turn();
        self.since_ns.store(now(), Ordering::Relaxed);
        self.state.fetch_add(1, Ordering::SeqCst);
    }
}

/// Which of processor and device is behind, by how long ops lie between issue and start.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    late: u64,
    seen: u64,
    device_behind: bool,
}

impl Pace {
    /// An op that starts later than this after its issue waited for others of its stream: 100 launches
    /// and more lie in a millisecond.
    const LATE_NS: u64 = 1_000_000;
    /// Ops after which it is judged anew.
    const JUDGED_BY: u64 = 1_000;

    /// An op has its times.
    pub(crate) fn see(&mut self, issued: Nanos, start: Nanos) {
        self.seen += 1;
        self.late += u64::from(start.0.saturating_sub(issued.0) >= Self::LATE_NS);
        if self.seen == Self::JUDGED_BY {
            self.device_behind = self.late > self.seen / 2;
            (self.late, self.seen) = (0, 0);
        }
    }

    /// Most ops waited for the device: the processor's time does not show. Not known is no.
    pub(crate) fn device_behind(&self) -> bool {
        self.device_behind
    }
}

/// Records taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Of launches, sets and copies.
    pub(crate) launches: u64,
    /// Of graphs' nodes.
    pub(crate) nodes: u64,
}

impl Taken {
    /// Counts an op's, if it has any.
    pub(crate) fn count(&mut self, op: &OpRecord) {
        match (op.asked, op.kind) {
            (Asked::No, _) => {}
            (_, OpKind::Graph) => {
                let records = [op.records.kernels, op.records.memsets, op.records.memcpys];
                self.nodes += records.map(u64::from).iter().sum::<u64>();
            }
            _ => self.launches += 1,
        }
    }
}

/// Decides when records are taken.
#[derive(Debug)]
pub(crate) struct Budget {
    credit_ns: i64,
    on: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            credit_ns: BURST_NS,
            on: true,
        }
    }
}

impl Budget {
    /// Whether records should be taken from here on, `elapsed` after it was last asked. `hidden`: the
    /// device is behind the processor, so what launches cost does not show.
    pub(crate) fn wanted(&mut self, elapsed: Duration, taken: Taken, hidden: bool) -> bool {
        let whole = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let earned = i64::try_from((elapsed / SHARE).as_nanos()).unwrap_or(i64::MAX);
        let launches = if hidden { 0 } else { taken.launches };
        let spent = (launches * LAUNCH_NS).saturating_add(taken.nodes * NODE_NS);
        let credit = self.credit_ns.saturating_add(earned);
        self.credit_ns = credit.saturating_sub(whole(spent)).min(BURST_NS);
        self.on = if self.on {
            self.credit_ns >= 0
        } else {
            self.credit_ns >= BURST_NS
        };
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_op_between_two_turns_is_certain() {
        let turns = Turns::new(false);
        let asked = |stamped| turns.asked(stamped).0;
        let off = turns.stamp(8);
        assert_eq!(turns.asked(off), (Asked::No, 8));
        turns.turn(
            || 20,
            || {
                assert_eq!(asked(off), Asked::Doubtful, "over within");
                assert_eq!(asked(turns.stamp(12)), Asked::Doubtful, "all within");
            },
        );
        assert_eq!(asked(off), Asked::Doubtful, "called before, over after");
        let on = turns.stamp(24);
        assert_eq!(turns.asked(on), (Asked::Yes, 24));
        turns.turn(|| 40, || ());
        assert_eq!(asked(on), Asked::Doubtful);
        assert_eq!(asked(turns.stamp(44)), Asked::No);
        turns.turn(|| 60, || ());
        assert_eq!(asked(on), Asked::Doubtful, "off in between");
        assert_eq!(asked(turns.stamp(64)), Asked::Yes);
        assert_eq!(
            Turns::new(true).asked(Turns::new(true).stamp(4)).0,
            Asked::Yes
        );
    }

    #[test]
    fn an_op_is_not_certain_for_the_clock_it_was_stamped_with() {
        let turns = Turns::new(false);
        // Ahead of the one that the turn reads.
        let stamped = turns.stamp(1 << 20);
        turns.turn(|| 20, || ());
        assert_eq!(turns.asked(stamped).0, Asked::Doubtful);
    }

    #[test]
    fn the_device_is_behind_when_most_ops_wait_for_it() {
        let mut pace = Pace::default();
        assert!(!pace.device_behind());
        for wait_ns in [2_000_000, 20_000] {
            (0..1_000).for_each(|op| pace.see(Nanos(op * 9_000), Nanos(op * 9_000 + wait_ns)));
            assert_eq!(pace.device_behind(), wait_ns > 1_000_000);
        }
    }

    /// Share of `visits` (10 ms apart) with records, and the share of time they cost, for a job that
    /// launches so many times a second.
    fn run(launches: u64, nodes: u64, hidden: bool, visits: u32) -> (f64, f64) {
        let mut budget = Budget::default();
        let (mut on, mut visits_on, mut cost_ns) = (true, 0, 0);
        for _ in 0..visits {
            let taken = if on {
                Taken {
                    launches: launches / 100,
                    nodes: nodes / 100,
                }
            } else {
                Taken::default()
            };
            visits_on += u32::from(on);
            cost_ns += taken.launches * LAUNCH_NS + taken.nodes * NODE_NS;
            on = budget.wanted(Duration::from_millis(10), taken, hidden);
        }
        let seconds = f64::from(visits) / 100.0;
        let cost = f64::from(u32::try_from(cost_ns / 1_000).unwrap()) / 1e6;
        (f64::from(visits_on) / f64::from(visits), cost / seconds)
    }

    #[test]
    fn records_cost_their_share_and_what_costs_nothing_is_taken_whole() {
        let (on, cost) = run(50_000, 0, false, 6_000);
        assert!((0.1..0.3).contains(&on) && cost < 0.0205, "{on} {cost}");
        let (on, cost) = run(0, 400_000, false, 6_000);
        assert!(on < 0.1 && cost < 0.0205, "{on} {cost}");
        assert_eq!(run(7_000, 0, false, 6_000).0, 1.0, "few launches");
        assert_eq!(run(50_000, 0, true, 6_000).0, 1.0, "the device is behind");
        assert!(
            run(50_000, 0, false, 10).0 == 1.0,
            "the first steps are whole"
        );
    }
}

//! Stretches of ops in step. Nearly every op of a job comes where the plan has it, on the plan's own
//! data and without steps. All that such an op changes but the lane's position is a matter of how many
//! there were, so the position alone is moved, and the rest is made good before anything looks at it.

use std::ops::Range;

use transit_hook::observer::OpCall;

use super::bind::Bindings;
use super::lane::{CLEAN_RUN, Lane, RING, Seen, State};
use super::matching::{same_data, same_name};
use super::script::{OpRecord, Script};

/// The stretch a lane is in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stretch {
    /// Position at which it began.
    from: u32,
    /// Position at which it ends at the latest; 0 if the lane is in none.
    end: u32,
}

/// Ops in a stretch at most: what is made good at once takes no longer than a launch.
const LONGEST: u16 = 1024;

/// How many ops from each of `ops` on need no attention of their own, up to [`LONGEST`]: they have no
/// steps and do not end an iteration.
pub(super) fn quiet(ops: impl DoubleEndedIterator<Item = bool>) -> Vec<u16> {
    let mut run = 0_u16;
    let count = |loud: bool| {
        run = if loud { 0 } else { (run + 1).min(LONGEST) };
        run
    };
    let mut found: Vec<u16> = ops.rev().map(count).collect();
    found.reverse();
    found
}

impl Lane {
    /// Takes an op that goes on with the stretch; nothing happens to any other.
    #[inline(always)]
    pub(super) fn goes_on(
        &mut self,
        script: &Script,
        bindings: &Bindings,
        call: &OpCall<'_>,
    ) -> bool {
        if self.next >= self.stretch.end || bindings.unconfirmed() {
            return false;
        }
        let Some(record) = script.ops.get((self.first_op + self.next) as usize) else {
            return false;
        };
        let same = same_name(record, call) && same_data(script, bindings, record, call);
        self.next += u32::from(same);
        same
    }

    /// A stretch may begin with the next op: the last one was taken as one of a stretch would be. It
    /// ends at `limit` at the latest.
    pub(super) fn begin_stretch(&mut self, script: &Script, limit: u32) {
        if self.state != State::Tracking || self.next >= self.length {
            return;
        }
        if let Some(record) = script.ops.get((self.first_op + self.next) as usize) {
            let end = (self.next + u32::from(record.quiet)).min(limit);
            self.stretch = Stretch {
                from: self.next,
                end,
            };
        }
    }

    /// Whether there may be something to make good.
    pub(super) fn in_stretch(&self) -> bool {
        self.stretch.end != 0
    }

    /// Positions of the ops taken as a stretch that are not made good yet.
    pub(super) fn stretched(&self) -> Range<u32> {
        if self.in_stretch() {
            self.stretch.from..self.next
        } else {
            0..0
        }
    }

    /// Ends the stretch and makes good what its ops mean to the lane. Its first position, and its ops.
    pub(super) fn end_stretch<'a>(&mut self, script: &'a Script) -> (u32, &'a [OpRecord]) {
        let taken = self.stretched();
        self.stretch = Stretch::default();
        let place = |at: u32| (self.first_op + at) as usize;
        let ops = script.ops.get(place(taken.start)..place(taken.end));
        let ops = ops.unwrap_or(&[]);
        let (forgotten, seen) = ops.split_at(ops.len().saturating_sub(RING));
        self.remembered += forgotten.len();
        seen.iter()
            .for_each(|record| self.remember(Seen::of_record(record)));
        let count = ops.len() as u64;
        self.matched += count;
        self.clean = self.clean.saturating_add(count);
        if count > 0 && self.clean >= CLEAN_RUN {
            self.astray = 0;
        }
        (taken.start, ops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_where_something_is_to_be_done_and_before_it_is_too_long() {
        let loud = [false, false, true, false, true];
        assert_eq!(quiet(loud.into_iter()), [2, 1, 0, 1, 0]);
        let long = quiet((0..3000).map(|at| at == 2999));
        assert_eq!((long.first(), long.get(2998)), (Some(&LONGEST), Some(&1)));
    }
}

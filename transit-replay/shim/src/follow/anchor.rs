//! Recognising the start of an iteration, or of a stream's share of it, from the last few ops.

use transit_format::trace::model::OpKind;

use super::lane::{Lane, NONE, RING, Seen};
use super::matching::{same_role, same_seen};
use super::script::Script;

/// Ops by which a stream other than the main one is recognised when its identity does not help.
const PREFIX: u32 = 8;
/// Fewer ops than this identify nothing.
const PREFIX_MIN: u32 = 3;
/// One op in this many may have another name.
const TOLERANCE: u32 = 5;

/// Leading ops asked for at most before the ops just before an iteration are asked as well: until
/// an anchor has passed, nothing of its iteration is followed.
const LEADING: u32 = 32;
/// Kernels and graph launches an anchor holds at least: copies and memsets have no name of their
/// own, and any stream that copies shows four of them in a row.
const NAMED_LEAST: usize = 4;
/// Leading ops of an anchor that mostly lies before its iteration.
const LEADING_LEAST: u32 = 4;

/// The ops around the start of the main stream's iteration by which that start is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// How many lead the iteration.
    pub(crate) ops: u32,
    /// How many end the iteration before: the optimizer's, where each pass of an accumulated
    /// gradient begins like the iteration itself.
    pub(crate) before: u32,
    /// How many of them may have other names.
    pub(crate) renamed: u32,
    /// No other stretch of the iteration looks like it.
    pub(crate) unique: bool,
}

impl Anchor {
    fn tolerant(ops: u32, before: u32) -> Self {
        Self {
            ops,
            before,
            renamed: (ops + before) / TOLERANCE,
            unique: true,
        }
    }

    /// The plan's own anchor, made longer where the iteration repeats it (training is made of
    /// layers that look alike), then moved back over the end of the iteration before, then
    /// made stricter.
    pub(crate) fn of(script: &Script) -> Self {
        let longest = script.length(script.main_stream()).min(RING as u32);
        let least = script.shape.anchor_ops.clamp(1.min(longest), longest);
        let leading = lengths(least, longest).map(|ops| Self::tolerant(ops, 0));
        let few = LEADING_LEAST.min(longest);
        let around = lengths(few, longest - few).map(|before| Self::tolerant(few, before));
        let short = leading.clone().filter(|anchor| anchor.ops <= LEADING);
        let strict = Self {
            renamed: 0,
            ..Self::tolerant(longest, 0)
        };
        let mut choices = short.chain(around).chain(leading).chain([strict]);
        choices
            .find(|anchor| anchor.ops > 0 && anchor.names(script) && !anchor.recurs(script))
            .unwrap_or(Self {
                unique: false,
                ..strict
            })
    }

    /// Whether it holds enough ops with a name of their own, or as many as the iteration has.
    fn names(self, script: &Script) -> bool {
        let main = script.main_stream();
        let length = script.length(main);
        let named = |at: u32| {
            let record = script.op(main, at % length.max(1));
            record.is_some_and(|record| matches!(record.kind, OpKind::Kernel | OpKind::Graph))
        };
        let first = length.saturating_sub(self.before);
        let count = |from: u32, to: u32| (from..to).filter(|at| named(*at)).count();
        count(first, length + self.ops) >= NAMED_LEAST.min(count(0, length))
    }

    /// Whether a stretch of the iteration other than its start passes for it.
    fn recurs(self, script: &Script) -> bool {
        let main = script.main_stream();
        let length = script.length(main);
        let seen = |at: u32| script.op(main, at % length.max(1)).map(Seen::of_record);
        (1..length).any(|start| {
            window(script, main, self, |back| {
                seen(start + length + self.ops - 1 - back)
            })
        })
    }
}

/// Lengths to try, growing by half.
fn lengths(from: u32, to: u32) -> impl Iterator<Item = u32> + Clone {
    let next = move |length: &u32| (*length < to).then(|| (*length + *length / 2 + 1).min(to));
    std::iter::successors((from <= to).then_some(from), next)
}

/// Whether the ops that `recent` tells (0 is the last) are those around the start of plan stream
/// `stream`: but for a few equal by name in position, those by role (kind, number of pointers).
fn window(
    script: &Script,
    stream: usize,
    anchor: Anchor,
    recent: impl Fn(u32) -> Option<Seen>,
) -> bool {
    let mut renamed_left = anchor.renamed;
    let length = script.length(stream);
    for back in 0..anchor.ops + anchor.before {
        let at = (length + anchor.ops - 1 - back) % length.max(1);
        let Some(record) = script.op(stream, at) else {
            return false;
        };
        let Some(seen) = recent(back) else {
            return false;
        };
        if same_seen(record, seen) {
            continue;
        }
        if renamed_left == 0 || !same_role(record, seen) {
            return false;
        }
        renamed_left -= 1;
    }
    anchor.ops > 0
}

/// Whether the lane's last ops open an iteration on the main stream; the position reached.
pub(crate) fn main_start(script: &Script, lane: &Lane) -> Option<u32> {
    let anchor = script.anchor;
    let main = script.main_stream();
    window(script, main, anchor, |back| lane.recent(back as usize)).then_some(anchor.ops)
}

/// Whether the lane's last ops open plan stream `stream`; the position reached.
pub(crate) fn side_start(script: &Script, stream: usize, lane: &Lane) -> Option<u32> {
    let ops = script.length(stream).min(PREFIX);
    let found = window(script, stream, Anchor::tolerant(ops, 0), |back| {
        lane.recent(back as usize)
    });
    (ops >= PREFIX_MIN && found).then_some(ops)
}

/// A plan stream other than `lane`'s own that its ops open and that no confirmed lane stands for:
/// streams are named by turn of creation, which an extra stream shifts. `free` says whether a
/// plan stream may be taken.
pub(crate) fn adopted(
    script: &Script,
    lane: &Lane,
    free: impl Fn(usize) -> bool,
) -> Option<(u32, u32)> {
    for stream in 0..script.streams.len() {
        let id = u32::try_from(stream).unwrap_or(NONE);
        if id == lane.plan || !free(stream) {
            continue;
        }
        let found = if stream == script.main_stream() {
            main_start(script, lane)
        } else {
            side_start(script, stream, lane)
        };
        if let Some(next) = found {
            return Some((id, next));
        }
    }
    None
}

//! Recognising the start of an iteration, or of a stream's share of it, from the last few ops.

use super::lane::{Lane, NONE, RING, Seen};
use super::matching::{same_role, same_seen};
use super::script::Script;

/// Ops by which a stream other than the main one is recognised when its identity does not help.
const PREFIX: u32 = 8;
/// Fewer ops than this identify nothing.
const PREFIX_MIN: u32 = 3;
/// One op in this many may have another name.
const TOLERANCE: u32 = 5;

/// The leading ops of the main stream's iteration by which its start is recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// How many.
    pub(crate) ops: u32,
    /// How many of them may have other names.
    pub(crate) renamed: u32,
    /// No other stretch of the iteration looks like it.
    pub(crate) unique: bool,
}

impl Anchor {
    /// The plan's own anchor, made longer, and then stricter, where the iteration repeats it:
    /// training is made of layers that look alike.
    pub(crate) fn of(script: &Script) -> Self {
        let longest = script.length(script.main_stream()).min(RING as u32);
        let mut ops = script.shape.anchor_ops.clamp(1.min(longest), longest);
        loop {
            let tolerant = Self {
                ops,
                renamed: ops / TOLERANCE,
                unique: true,
            };
            if !tolerant.recurs(script) {
                return tolerant;
            }
            if ops == longest {
                let strict = Self {
                    renamed: 0,
                    ..tolerant
                };
                return Self {
                    unique: !strict.recurs(script),
                    ..strict
                };
            }
            ops = (ops + ops / 2 + 1).min(longest);
        }
    }

    /// Whether a stretch of the iteration other than its start passes for it.
    fn recurs(self, script: &Script) -> bool {
        let main = script.main_stream();
        let length = script.length(main);
        let seen = |at: u32| script.op(main, at % length.max(1)).map(Seen::of_record);
        (1..length)
            .any(|start| window(script, main, self, |back| seen(start + self.ops - 1 - back)))
    }
}

/// Whether the ops that `recent` tells (0 is the last) are the first of plan stream `stream`: but
/// for a few equal by name in position, those by role (kind, number of pointers).
fn window(
    script: &Script,
    stream: usize,
    anchor: Anchor,
    recent: impl Fn(u32) -> Option<Seen>,
) -> bool {
    let mut renamed_left = anchor.renamed;
    for back in 0..anchor.ops {
        let Some(record) = script.op(stream, anchor.ops - 1 - back) else {
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
    let anchor = Anchor {
        ops,
        renamed: ops / TOLERANCE,
        unique: true,
    };
    let found = window(script, stream, anchor, |back| lane.recent(back as usize));
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

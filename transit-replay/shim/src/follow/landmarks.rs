//! Ops that one of their pointers names: no other op of the iteration's main stream has that kernel on
//! that address. A kernel on a layer's weights is one, however the data made the ops before it fall
//! out. Where the ops of a mixture of experts come in other numbers and other kernels each time, the
//! place is lost for good by names alone (every expert looks like the next) and found again at the
//! second landmark of the next layer.

use std::collections::HashMap;

use transit_format::trace::model::OpKind;
use transit_hook::observer::OpCall;

use super::lane::{Lane, NONE};
use super::matching::{COMPARED, agreement};
use super::script::{PointerRecord, Script};
use super::side::Track;

/// Ops of one name that an op is compared with: what it costs while its place is in doubt.
const MOST_OF_A_NAME: usize = 256;
/// Ops between the two landmarks of a proof.
const FARTHEST: u32 = 64;

/// An op that one or more of its pointers tell; which ones its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Landmark {
    name_hash: u64,
    /// Position of the op in the main stream's iteration.
    at: u32,
}

/// All landmarks of the main stream, by name and position.
#[derive(Debug, Default)]
pub(crate) struct Landmarks {
    sorted: Box<[Landmark]>,
}

impl Landmarks {
    /// Those of the script's main stream, noted in its ops as well. The first ops are none: they show
    /// an iteration's start, which is more than a place.
    pub(crate) fn of(script: &mut Script) -> Self {
        let main = script.main_stream();
        let mut pairs: HashMap<(u64, OpKind, u32, PointerRecord), Option<u32>> = HashMap::new();
        for at in 0..script.length(main) {
            let Some(op) = script.op(main, at) else {
                continue;
            };
            for (slot, &pointer) in (0..).zip(script.pointers_of(op).iter().take(COMPARED)) {
                let key = (op.name_hash, op.kind, slot, pointer);
                let place = pairs.entry(key).or_insert(Some(at));
                *place = place.filter(|&first| first == at);
            }
        }
        let mut sorted = Vec::new();
        for (&(name_hash, _, slot, _), &at) in &pairs {
            let Some(at) = at.filter(|&at| at >= script.anchor.ops) else {
                continue;
            };
            if let Some(op) = script.op_mut(main, at) {
                op.landmark |= 1 << slot;
                sorted.push(Landmark { name_hash, at });
            }
        }
        sorted.sort_unstable();
        sorted.dedup();
        Self {
            sorted: sorted.into_boxed_slice(),
        }
    }

    /// The landmarks of a name; none of a name with too many to look through.
    fn named(&self, name_hash: u64) -> &[Landmark] {
        let first = self
            .sorted
            .partition_point(|mark| mark.name_hash < name_hash);
        let rest = self.sorted.get(first..).unwrap_or(&[]);
        let count = rest.partition_point(|mark| mark.name_hash == name_hash);
        let known = rest.get(..count).unwrap_or(&[]);
        if count > MOST_OF_A_NAME { &[] } else { known }
    }
}

/// The position of the landmark that `call` is; none if it could be two.
fn seen(track: Track<'_>, call: &OpCall<'_>) -> Option<u32> {
    let mut found = None;
    for mark in track.script.landmarks.named(call.name_hash) {
        let Some(record) = track.op(mark.at) else {
            continue;
        };
        let agreement = agreement(track.script, track.bindings, record, call);
        if agreement.same & record.landmark != 0 && record.kind == call.kind {
            if found.is_some() {
                return None;
            }
            found = Some(mark.at);
        }
    }
    found
}

/// The place of a main-stream lane that is in doubt of it within the iteration: proved by two landmarks
/// as many ops apart as the plan has between them. One alone may be a block that the allocator gave
/// out to another op this time.
pub(crate) fn place(track: Track<'_>, lane: &mut Lane, call: &OpCall<'_>) -> Option<u32> {
    if track.stream != track.script.main_stream() || lane.next >= track.length {
        return None;
    }
    let at = seen(track, call)?;
    let (before, then) = std::mem::replace(&mut lane.landmark, (at, lane.remembered));
    let apart = u32::try_from(lane.remembered - then).unwrap_or(NONE);
    let proved = before != NONE && apart <= FARTHEST && before.checked_add(apart) == Some(at);
    proved.then_some(at)
}

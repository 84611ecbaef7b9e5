//! The steady iteration as plans see it: its ops in issue order, each with its stream and ordinal,
//! and its counterparts in other iterations like it.

use transit_format::ids::StreamId;
use transit_format::trace::model::Op;

use crate::iterations::{self, Iteration, Numbering, Phase, align};
use crate::num::{index, narrow};
use crate::timeline::Timeline;

/// Iterations looked at beside the steady one, so that a long trace costs no more than a short one.
const OTHERS: usize = 4;

/// One op of the steady iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOpRef {
    /// Sequence number in the trace.
    pub seq: u32,
    /// Index of its stream in [`Unrolled::streams`].
    pub stream: u32,
    /// Its ordinal on that stream within the iteration.
    pub ordinal: u32,
}

/// The steady iteration, unrolled.
pub struct Unrolled {
    /// Streams with an op in it, the main stream first, each with its ops' sequence numbers.
    pub streams: Vec<(StreamId, Vec<u32>)>,
    /// All ops in issue order.
    pub ops: Vec<PlanOpRef>,
    /// For each iteration looked at, the steady one last, the sequence number of each op's
    /// counterpart.
    pub counterparts: Vec<Vec<Option<u32>>>,
}

impl Unrolled {
    /// Unrolls a phase's steady iteration. `None` without one.
    #[must_use]
    pub fn new(timeline: &Timeline<'_>, phase: &Phase) -> Option<Self> {
        let steady = phase.steady()?;
        let streams = iterations::ops_by_stream(timeline, phase, steady);
        let mut ops = Vec::new();
        for (stream, (_, seqs)) in (0_u32..).zip(&streams) {
            for (ordinal, seq) in (0_u32..).zip(seqs) {
                ops.push(PlanOpRef {
                    seq: *seq,
                    stream,
                    ordinal,
                });
            }
        }
        ops.sort_unstable_by_key(|op| op.seq);
        let mut unrolled = Self {
            streams,
            ops,
            counterparts: Vec::new(),
        };
        let others = phase
            .matched()
            .rev()
            .filter(|other| other.start != steady.start);
        let mut others: Vec<&Iteration> = others.take(OTHERS).collect();
        others.reverse();
        for other in others {
            unrolled.add_counterparts(timeline, phase, other);
        }
        let own = unrolled.ops.iter().map(|op| Some(op.seq)).collect();
        unrolled.counterparts.push(own);
        Some(unrolled)
    }

    fn add_counterparts(&mut self, timeline: &Timeline<'_>, phase: &Phase, other: &Iteration) {
        let numbering = Numbering::new(timeline);
        let mut by_place: Vec<Vec<Option<u32>>> = self
            .streams
            .iter()
            .map(|(_, seqs)| vec![None; seqs.len()])
            .collect();
        for (stream, seqs) in iterations::ops_by_stream(timeline, phase, other) {
            let Some(at) = self.streams.iter().position(|(own, _)| *own == stream) else {
                continue;
            };
            let Some((_, own)) = self.streams.get(at) else {
                continue;
            };
            let places = align::align(
                &numbering.of_all(timeline, own),
                &numbering.of_all(timeline, &seqs),
            );
            for (seq, place) in seqs.iter().zip(places) {
                let slot = place.zip(by_place.get_mut(at));
                if let Some(slot) = slot.and_then(|(place, list)| list.get_mut(index(place))) {
                    *slot = Some(*seq);
                }
            }
        }
        let of = |op: &PlanOpRef| *by_place.get(index(op.stream))?.get(index(op.ordinal))?;
        self.counterparts.push(self.ops.iter().map(of).collect());
    }

    /// Sequence numbers of an op's counterparts, oldest iteration first.
    pub fn counterparts_of(&self, place: usize) -> impl Iterator<Item = Option<u32>> + '_ {
        self.counterparts
            .iter()
            .map(move |list| list.get(place).copied().flatten())
    }

    /// Number of ops on the main stream.
    #[must_use]
    pub fn main_ops(&self) -> u32 {
        self.streams
            .first()
            .map_or(0, |(_, seqs)| narrow(seqs.len()))
    }

    /// Place in [`Self::ops`] of the main stream's op with an ordinal.
    #[must_use]
    pub fn place_of_main(&self, ordinal: u32) -> Option<usize> {
        self.ops
            .iter()
            .position(|op| op.stream == 0 && op.ordinal == ordinal)
    }

    /// The op at a place.
    #[must_use]
    pub fn op<'t>(&self, timeline: &Timeline<'t>, place: usize) -> Option<&'t Op> {
        timeline.op(self.ops.get(place)?.seq)
    }

    /// Sequence numbers between which the steady iteration was issued.
    #[must_use]
    pub fn seq_range(&self) -> (u32, u32) {
        let first = self.ops.first().map_or(0, |op| op.seq);
        (
            first,
            self.ops.last().map_or(0, |op| op.seq.saturating_add(1)),
        )
    }
}

//! The main stream as a sequence of small numbers, one per (kind, function name).

use std::collections::HashMap;

use transit_format::ids::StreamId;
use transit_format::trace::model::OpKind;

use crate::num::{index, narrow};
use crate::timeline::Timeline;

/// A stream's ops as numbers, equal where kind and function name are equal.
pub struct Tokens {
    stream: StreamId,
    tokens: Vec<u32>,
    seqs: Vec<u32>,
    kinds: usize,
    /// Sequence number that stands for "after the last op".
    end_seq: u32,
}

impl Tokens {
    /// Numbers a stream's ops.
    #[must_use]
    pub fn new(timeline: &Timeline<'_>, stream: StreamId) -> Self {
        let seqs = timeline.ops_of(stream).to_vec();
        let numbering = Numbering::new(timeline);
        let tokens = seqs
            .iter()
            .map(|seq| numbering.of(timeline, *seq))
            .collect();
        Self {
            stream,
            tokens,
            seqs,
            kinds: numbering.count(),
            end_seq: timeline.op_count(),
        }
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// All tokens.
    #[must_use]
    pub fn all(&self) -> &[u32] {
        &self.tokens
    }

    /// Sequence numbers of the ops.
    #[must_use]
    pub fn seqs(&self) -> &[u32] {
        &self.seqs
    }

    /// One more than the largest token.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.kinds
    }

    /// Number of ops.
    #[must_use]
    pub fn len(&self) -> u32 {
        narrow(self.tokens.len())
    }

    /// Whether there is no op.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens from one place to another.
    #[must_use]
    pub fn slice(&self, start: u32, end: u32) -> &[u32] {
        self.tokens.get(index(start)..index(end)).unwrap_or(&[])
    }

    /// Sequence number of the op at a place; one past all ops for the place after the last.
    #[must_use]
    pub fn seq_at(&self, place: u32) -> u32 {
        self.seqs.get(index(place)).copied().unwrap_or(self.end_seq)
    }

    /// A hash of the tokens between two places.
    #[must_use]
    pub fn hash(&self, start: u32, end: u32) -> u64 {
        self.slice(start, end)
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, token| mix(hash, *token))
    }
}

/// Folds a token into a hash.
#[must_use]
pub(super) fn mix(hash: u64, token: u32) -> u64 {
    (hash ^ u64::from(token))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(23)
}

/// Gives equal numbers to functions of equal name, whatever module they came from.
pub struct Numbering {
    /// Number of a function's name, by function id.
    by_function: Vec<u32>,
    names: u32,
}

impl Numbering {
    /// Numbers the names of a trace.
    #[must_use]
    pub fn new(timeline: &Timeline<'_>) -> Self {
        let mut names: HashMap<&str, u32> = HashMap::new();
        let mut by_function = Vec::new();
        for function in &timeline.trace().functions {
            let next = narrow(names.len());
            by_function.push(*names.entry(function.name.as_str()).or_insert(next));
        }
        Self {
            by_function,
            names: narrow(names.len()),
        }
    }

    /// The token of an op.
    pub fn of(&self, timeline: &Timeline<'_>, seq: u32) -> u32 {
        let Some(op) = timeline.op(seq) else { return 0 };
        let name = self
            .by_function
            .get(op.function.index())
            .copied()
            .unwrap_or(self.names);
        let kind = match op.kind {
            OpKind::Kernel => 0,
            OpKind::Graph => 1,
            OpKind::Memset => 2,
            OpKind::Memcpy => 3,
        };
        name.saturating_mul(4).saturating_add(kind)
    }

    /// The tokens of some ops.
    #[must_use]
    pub fn of_all(&self, timeline: &Timeline<'_>, seqs: &[u32]) -> Vec<u32> {
        seqs.iter().map(|seq| self.of(timeline, *seq)).collect()
    }

    /// One more than the largest token.
    #[must_use]
    pub fn count(&self) -> usize {
        index(self.names.saturating_add(1)).saturating_mul(4)
    }
}

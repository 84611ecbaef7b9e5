//! What hooks tell off the launch path, queued for the writer thread together with the number of
//! ops issued before it.

use transit_format::ids::{AllocId, FunctionId, OpSeq, StreamId};
use transit_format::trace::model::{MarkKind, StreamKind};

/// A thing told once.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Function {
        id: FunctionId,
        name: String,
        params: u32,
    },
    Stream {
        id: StreamId,
        kind: StreamKind,
        device: u32,
        turn: u32,
        cupti: Option<(u32, u32)>,
    },
    Alloc(TrackedAlloc),
    Free {
        id: AllocId,
        address: u64,
    },
    Mark(MarkKind),
    /// CUPTI's number of a stream told earlier.
    StreamNumber(StreamId, (u32, u32)),
}

/// An allocation as the hooks tell it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackedAlloc {
    pub(crate) id: AllocId,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) device: u32,
    pub(crate) converted: bool,
    pub(crate) managed: bool,
    pub(crate) pooled: bool,
    pub(crate) caller: &'static str,
}

/// A told thing with its place among the ops.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    /// Ops issued before it.
    pub(crate) at_op: OpSeq,
    /// On the trace's clock.
    pub(crate) raw_ns: u64,
    pub(crate) told: Told,
}

//! What a plan says, as plain values: the planner fills a [`Plan`] and hands it to
//! [`super::write()`]; the replayer borrows the same facts from a mapped file through
//! [`super::View`]. No plan step discards data: there is no way to say it here.

use serde::{Deserialize, Serialize};

use crate::ids::{Ordinal, StreamId};
use crate::trace::model::{OpKind, Stream};

/// Facts about where the plan came from, stored as JSON text in the file (never read on the
/// launch path).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of the planner.
    pub tool_version: String,
    /// `base`, `prefetch`, `advise`, ...
    pub policy: String,
    /// Command line of the recorded job.
    pub command: Vec<String>,
    /// Rank the trace was of.
    pub rank: Option<u32>,
    /// Device name in the trace.
    pub device_name: String,
    /// CRC-32 of the trace file, as hexadecimal text.
    pub trace_hash: String,
    /// Name of the evidence the iteration boundary was chosen by.
    pub boundary_evidence: String,
    /// Confidence in the phase, 0 to 1.
    pub confidence: f64,
    /// Every choice made, name and value, for `inspect`.
    pub choices: Vec<(String, String)>,
}

/// Numbers the replayer needs before anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Capacity the plan was built for, in bytes.
    pub capacity_bytes: u64,
    /// The emulated card in bytes; 0 if the plan does not emulate.
    pub card_bytes: u64,
    /// The stream whose ops define the iteration.
    pub main_stream: StreamId,
    /// Number of leading ops of the main stream's iteration that identify its start.
    pub anchor_ops: u32,
    /// Op of the main stream at which the paper's Advise speaks (the midpoint).
    pub midpoint: Ordinal,
    /// Advise `SetAccessedBy` on all tracked allocations at the midpoint.
    pub advise_all_at_midpoint: bool,
    /// Smallest converted allocation at record time.
    pub min_convert_bytes: u64,
}

/// An allocation the plan speaks of, as it was when recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlanAlloc {
    /// The n-th tracked allocation of the process.
    pub ordinal: u32,
    /// The n-th tracked allocation of this size.
    pub turn: u32,
    /// Its size.
    pub bytes: u64,
    /// Its device.
    pub device: u32,
}

/// One op of the iteration as a replayer recognises it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanOp {
    /// What it is.
    pub kind: OpKind,
    /// 64-bit FNV-1a hash of the function's mangled name (see [`super::name_hash`]).
    pub name_hash: u64,
    /// Hash of grid, block and shared memory.
    pub shape: u32,
    /// Index of the name in [`Plan::names`].
    pub name: u32,
    /// Managed pointers: index into [`Plan::allocs`] and offset.
    pub pointers: Vec<(u32, u64)>,
}

/// A stretch of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Range {
    /// Index into [`Plan::allocs`].
    pub alloc: u32,
    /// Offset within it.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// What a step does. None of these can lose data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Migrate to the GPU on the op's own stream, before the op.
    #[default]
    PrefetchToDevice,
    /// Migrate to the host before the op (the emulated card's evictions), in requests of at most
    /// 2 MiB.
    EvictToHost,
    /// `SetAccessedBy` the device.
    AdviseAccessedBy,
    /// `SetPreferredLocation` to the host.
    AdvisePreferHost,
    /// `SetReadMostly`.
    AdviseReadMostly,
}

/// Something to do before one op of the iteration. Steps of one op are kept in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Stream of the op.
    pub stream: StreamId,
    /// The op's ordinal on that stream within the iteration.
    pub ordinal: Ordinal,
    /// What to do.
    pub action: Action,
    /// On what.
    pub ranges: Vec<Range>,
}

/// The iteration's ops on one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanStream {
    /// Which stream, as (kind, device, turn).
    pub stream: Stream,
    /// Its ops, in order.
    pub ops: Vec<PlanOp>,
}

/// A placement that holds from the moment its allocation is bound, whatever the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// What to do once.
    pub action: Action,
    /// On what.
    pub range: Range,
}

/// A whole plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Provenance.
    pub meta: Meta,
    /// Numbers.
    pub shape: Shape,
    /// Function names.
    pub names: Vec<String>,
    /// Allocations spoken of.
    pub allocs: Vec<PlanAlloc>,
    /// Streams; [`StreamId`] in a plan is an index into this list.
    pub streams: Vec<PlanStream>,
    /// Steps, sorted by (stream, ordinal); order within one op is kept.
    pub steps: Vec<Step>,
    /// Placements.
    pub placements: Vec<Placement>,
    /// Ranges on the device at the start of a steady iteration (emulated card only), so that a
    /// replayer can bring the card into the state the steps were made for.
    pub start_resident: Vec<Range>,
}

//! What a trace says, as plain values: the types a recorder hands to [`super::Writer`] and a
//! planner gets from [`super::Trace`]. No byte layout is known here.

use serde::{Deserialize, Serialize};

use super::check::Check;
use crate::ids::{AllocId, FunctionId, Nanos, OpSeq, StreamId};

/// Facts about the recorded process and device, written once at the start of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the tool that wrote the file.
    pub tool_version: String,
    /// The job's command line as given.
    pub command: Vec<String>,
    /// Host name, process id and the ranks found in the environment.
    pub host: String,
    /// Process id of the recorded process.
    pub pid: u32,
    /// Global rank, if a launcher announced one.
    pub rank: Option<u32>,
    /// Local rank, if a launcher announced one.
    pub local_rank: Option<u32>,
    /// Seconds since the Unix epoch at the trace's start.
    pub start_unix_s: u64,
    /// Device name as the driver gives it.
    pub device_name: String,
    /// Total memory of the device.
    pub device_total_bytes: u64,
    /// Driver version as `cuDriverGetVersion` gives it (13000 = 13.0).
    pub driver_version: u32,
    /// CUPTI version, 0 without CUPTI.
    pub cupti_version: u32,
    /// The imposed card of `--hbm-limit`, if any. `Some(0)` means touch maps.
    pub emulated_card_bytes: Option<u64>,
    /// Whether fault and remote-map records were asked for.
    pub faults_recorded: bool,
    /// Policy and plan hash if this is the trace of a replayed run.
    pub replayed_policy: Option<String>,
    /// Smallest request that was converted to managed memory.
    pub min_convert_bytes: u64,
    /// Free-form facts shown by `inspect` (allocator configuration, why CUPTI is missing, ...).
    pub notes: Vec<(String, String)>,
}

/// What kind of work an op is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OpKind {
    /// A kernel launch.
    #[default]
    Kernel,
    /// A graph launch: one op however many nodes it holds.
    Graph,
    /// A memset on managed memory.
    Memset,
    /// A memcpy that reads or writes managed memory.
    Memcpy,
}

/// A kernel's identity: everything that is the same at each of its launches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// Mangled name; memset, memcpy and graph ops use `memset`, `memcpy`, `graph`.
    pub name: String,
    /// Number of parameters, 0 if unknown.
    pub params: u32,
}

/// How a stream came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamKind {
    /// The legacy default stream.
    #[default]
    Legacy,
    /// The per-thread default stream.
    PerThread,
    /// Created by the job.
    Created,
}

/// A stream as (kind, device, turn).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stream {
    /// Legacy, per-thread or created.
    pub kind: StreamKind,
    /// CUDA device ordinal.
    pub device: u32,
    /// The n-th stream of this kind on this device.
    pub turn: u32,
}

/// One allocation of tracked memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// Address the driver gave; kept for pictures only, it changes from run to run.
    pub address: u64,
    /// Size asked for.
    pub bytes: u64,
    /// CUDA device ordinal.
    pub device: u32,
    /// Whether TRANSIT turned it into managed memory (else it is the job's own managed memory,
    /// or an unconverted device allocation kept for the ledger).
    pub converted: bool,
    /// Whether it is managed memory at all.
    pub managed: bool,
    /// Whether it came from a stream-ordered pool: such memory can be fetched, and takes no advice.
    pub pooled: bool,
    /// File name of the library that asked, empty if unknown.
    pub caller: String,
    /// Ops issued in the process before this allocation.
    pub at_op: OpSeq,
    /// When it was made.
    pub at_ns: Nanos,
}

/// The end of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// What was freed.
    pub alloc: AllocId,
    /// Ops issued in the process before this free.
    pub at_op: OpSeq,
    /// When.
    pub at_ns: Nanos,
}

/// A managed pointer found in an op's arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pointer {
    /// Allocation pointed into.
    pub alloc: AllocId,
    /// Offset within it.
    pub offset: u64,
    /// Extent in bytes where the op says it (memset, memcpy), else 0.
    pub bytes: u64,
}

/// One op. Its pointers lie in [`super::Trace::pointers`] from `first_pointer` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// What it is.
    pub kind: OpKind,
    /// Where it was issued.
    pub stream: StreamId,
    /// Which function.
    pub function: FunctionId,
    /// A hash of grid, block and shared memory (for a graph: of its node count).
    pub shape: u32,
    /// When the host issued it.
    pub issued_ns: Nanos,
    /// When the device began it, 0 if unknown.
    pub start_ns: Nanos,
    /// When the device ended it, 0 if unknown.
    pub end_ns: Nanos,
    /// Index of its first pointer.
    pub first_pointer: u64,
    /// Number of pointers.
    pub pointers: u32,
}

/// Where a migration went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Host to device.
    #[default]
    HtoD,
    /// Device to host.
    DtoH,
    /// Device to device.
    DtoD,
}

/// Why a migration happened (CUPTI's migration cause).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// Not said.
    #[default]
    Unknown,
    /// A prefetch or advise call.
    User,
    /// A fault.
    Coherence,
    /// The driver's own neighbourhood (tree) prefetch.
    Prefetch,
    /// Eviction to make room.
    Eviction,
    /// Access counters.
    AccessCounters,
}

/// One unified-memory transfer as CUPTI reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Allocation it lies in.
    pub alloc: AllocId,
    /// Offset within it.
    pub offset: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Which way.
    pub direction: Direction,
    /// Why.
    pub cause: Cause,
    /// Device it moved to or from.
    pub device: u32,
    /// Start on the device's clock, as trace time.
    pub start_ns: Nanos,
    /// End.
    pub end_ns: Nanos,
    /// The op it belongs to where the recorder knows (emulated card: the op that was settled),
    /// else `None`: the planner assigns it by time.
    pub op: Option<OpSeq>,
}

/// One GPU fault group or remote mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Allocation it lies in.
    pub alloc: AllocId,
    /// Offset within it.
    pub offset: u64,
    /// Fault groups merged into the record, or bytes for a remote map.
    pub value: u64,
    /// What happened.
    pub kind: FaultKind,
    /// When it began.
    pub start_ns: Nanos,
    /// When it was served.
    pub end_ns: Nanos,
    /// The op, where known.
    pub op: Option<OpSeq>,
}

/// Kinds of [`Fault`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultKind {
    /// GPU fault by a read.
    #[default]
    Read,
    /// GPU fault by a write, or of unknown access (unknown counts as written).
    Write,
    /// GPU mapped host memory without moving it (zero-copy).
    RemoteMap,
    /// CPU page fault.
    Cpu,
}

/// Things on the time line that are not ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkKind {
    /// The host waited for the device (context or stream synchronise).
    Sync,
    /// A capture began on a stream.
    CaptureBegin,
    /// A capture ended.
    CaptureEnd,
    /// The recording window opened.
    WindowBegin,
    /// The recording window closed.
    WindowEnd,
    /// A replayer saw the start of an iteration.
    Iteration,
}

/// A point on the time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What it marks.
    pub kind: MarkKind,
    /// Ops issued before it.
    pub at_op: OpSeq,
    /// When.
    pub at_ns: Nanos,
}

/// Events that were lost, by cause. All zero in a good trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// Ops that found their thread's ring full.
    pub ops: u64,
    /// Records CUPTI said it dropped.
    pub cupti: u64,
    /// Transfers or faults at addresses outside every tracked allocation.
    pub unplaced: u64,
    /// CUPTI records with impossible times.
    pub bad_times: u64,
}

/// Totals, written when the recorder closes the file and refreshed with each block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Ops seen by the hooks.
    pub ops: u64,
    /// Kernel, memset and memcpy records that CUPTI delivered for ops of the window, and beside them.
    pub cupti_ops: u64,
    /// Kernels, memsets, copies and graph nodes that the window's ops launched.
    pub hooked_ops: u64,
    /// Highest sum of converted bytes alive at once.
    pub converted_peak_bytes: u64,
    /// Highest sum of unconverted device bytes alive at once.
    pub unconverted_peak_bytes: u64,
    /// What was lost.
    pub drops: Drops,
    /// Hooks against CUPTI, by kind. `None` where it cannot be made: without CUPTI, where another
    /// tool takes its records, in traces from before it was kept, and in parts of a trace.
    pub check: Option<Check>,
    /// Ops that have no device times because CUPTI was not asked for them: its records are taken in
    /// bursts where they would slow the job.
    pub unasked_ops: u64,
}

impl Totals {
    /// Says that CUPTI was not asked for all ops, if so.
    #[must_use]
    pub fn sampled(&self) -> Option<String> {
        let timed = self.ops.saturating_sub(self.unasked_ops);
        (self.unasked_ops > 0).then(|| {
            format!(
                "{timed} of {} ops timed, the others issued while CUPTI was off or being turned on",
                self.ops
            )
        })
    }
}

/// Anything the recorder hands to the writer, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A function seen for the first time; ids count up from 0 in order of appearance.
    Function(Function),
    /// A stream seen for the first time; ids count up from 0.
    Stream(Stream),
    /// An allocation; ids count up from 0.
    Alloc(Alloc),
    /// A free.
    Free(Free),
    /// An op with its pointers; sequence numbers count up from 0. `first_pointer` and `pointers`
    /// of the op are set by the writer.
    Op(Op, Vec<Pointer>),
    /// Device times of an earlier op.
    OpTime {
        /// Which op.
        op: OpSeq,
        /// When the device began it.
        start_ns: Nanos,
        /// When the device ended it.
        end_ns: Nanos,
    },
    /// A transfer.
    Migration(Migration),
    /// A fault or remote map.
    Fault(Fault),
    /// A mark.
    Mark(Mark),
    /// Totals so far.
    Totals(Totals),
}

//! The seam between the hooks and what a shim does with them. The hooks say what the job does, in
//! the order it does it; the recorder writes it down, the replayer follows its plan.
//!
//! Every method runs on one of the job's own threads, inside a hooked call, with the thread's
//! re-entry guard held (driver calls made here pass straight through) and no lock of ours held.
//! `before_op` and `after_op` are the launch path: no allocation, no formatting, no lock, no
//! unbounded wait. A panic in any of them is caught and disables the shim.

use transit_format::ids::{AllocId, FunctionId, OpSeq, StreamId};
use transit_format::trace::model::{OpKind, StreamKind};

use crate::driver::Driver;

/// A device pointer found in an op's arguments, resolved against the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointerArg {
    /// Allocation pointed into.
    pub alloc: AllocId,
    /// Offset within it.
    pub offset: u64,
    /// Extent where the op says it (memset, memcpy), else 0.
    pub bytes: u64,
}

/// A tracked allocation.
#[derive(Clone, Debug, Default)]
pub struct Allocation {
    /// Number in order of allocation within the process.
    pub id: AllocId,
    /// Base address.
    pub address: u64,
    /// Size asked for.
    pub bytes: u64,
    /// CUDA device ordinal.
    pub device: u32,
    /// The driver's handle of the context it ends with; 0 if none was current.
    pub context: usize,
    /// Turned into managed memory by us.
    pub converted: bool,
    /// Managed memory at all (converted, or the job's own).
    pub managed: bool,
    /// The job's pool that it was asked of; 0: none.
    pub pool: usize,
    /// File name of the library that asked (`libnccl.so.2`), empty if unknown.
    pub caller: &'static str,
}

/// A device function, told once, before the first op that launches it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionInfo<'a> {
    /// Its number in order of first launch.
    pub id: FunctionId,
    /// Mangled name; `memset`, `memcpy` or `graph` for ops that are no kernel.
    pub name: &'a str,
    /// Number of parameters, 0 if the driver does not say.
    pub params: u32,
}

/// A stream, told once, before the first op on it.
#[derive(Clone, Copy, Debug)]
pub struct StreamInfo {
    /// Its number in order of first use.
    pub id: StreamId,
    /// Legacy, per-thread or created.
    pub kind: StreamKind,
    /// CUDA device ordinal.
    pub device: u32,
    /// The n-th of its kind on its device.
    pub turn: u32,
    /// The driver's context handle.
    pub context: usize,
    /// The driver's stream handle (0, 1 and 2 are the default streams).
    pub handle: usize,
}

/// Records of device work that an op causes, by kind, as CUPTI will report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceRecords {
    /// Kernels.
    pub kernels: u32,
    /// Memsets.
    pub memsets: u32,
    /// Copies.
    pub memcpys: u32,
    /// The counts cannot be known when the op is issued: the device decides what runs (conditional
    /// and device-updatable nodes, nodes switched off), or the driver how many copies it makes.
    pub open: bool,
}

impl DeviceRecords {
    /// One record of the kind.
    #[inline]
    #[must_use]
    pub const fn one(kind: OpKind) -> Self {
        let (kernels, memsets, memcpys) = match kind {
            OpKind::Kernel => (1, 0, 0),
            OpKind::Memset => (0, 1, 0),
            OpKind::Memcpy => (0, 0, 1),
            OpKind::Graph => (0, 0, 0),
        };
        Self {
            kernels,
            memsets,
            memcpys,
            open: false,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.kernels as u64 + self.memsets as u64 + self.memcpys as u64
    }
}

/// One op, about to be issued or just issued.
#[derive(Clone, Copy, Debug)]
pub struct OpCall<'a> {
    /// Number within the process, over all streams and threads. While `capturing`, a number of a
    /// separate count: a captured op does not run, so it takes none of the process' numbers. 0 if the
    /// observer does not write ops down ([`Observer::writes_down`]).
    pub seq: OpSeq,
    /// What it is.
    pub kind: OpKind,
    /// Where.
    pub stream: StreamId,
    /// The driver's stream handle, for work that must precede the op in stream order.
    pub stream_handle: usize,
    /// Device of the current context.
    pub device: u32,
    /// Which function.
    pub function: FunctionId,
    /// 64-bit FNV-1a of the function's name (see [`transit_format::plan::name_hash`]).
    pub name_hash: u64,
    /// Hash of grid, block and shared memory; 0 if the observer does not write ops down.
    pub shape: u32,
    /// Records of device work it will cause: one of its kind, or those of a graph's nodes.
    pub records: DeviceRecords,
    /// Bytes a memset or memcpy writes: less than the extents of its pointers where rows have gaps
    /// between them. 0 if unknown (a batch), and for other kinds.
    pub payload_bytes: u64,
    /// Managed pointers among its arguments.
    pub pointers: &'a [PointerArg],
    /// The stream is being captured: nothing may be added to it, and nothing runs now.
    pub capturing: bool,
    /// The caller is on the exclusion list (NCCL, ...): never wait for this op.
    pub excluded: bool,
}

/// What a shim does with what the hooks see.
pub trait Observer: Sync {
    /// The first successful `cuInit` has returned. The first moment driver calls, threads, files
    /// and output are allowed.
    fn started(&self, driver: &'static Driver);
    /// A function's first launch. Told, like [`Self::stream`], under a lock that keeps the numbers
    /// in order: no driver calls here.
    fn function(&self, function: &FunctionInfo<'_>);
    /// A stream's first op.
    fn stream(&self, stream: &StreamInfo);
    /// A tracked allocation was made: converted, the job's own managed memory, or (`managed` is
    /// false) a request of `cuMemAlloc` that stayed device memory. Threads that allocate at once
    /// may be told out of the order of ids.
    fn allocated(&self, allocation: &Allocation);
    /// A tracked allocation is about to be freed. If the driver then refuses, it is told again as
    /// allocated, under a new number.
    fn freeing(&self, allocation: &Allocation);
    /// An op is about to be issued. `None`: [`Self::after_op`] need not be told of it; else a word
    /// that is handed to it.
    fn before_op(&self, op: &OpCall<'_>) -> Option<u64>;
    /// An op was issued; `word` is what [`Self::before_op`] answered and `result` what the driver
    /// did (0 is success).
    fn after_op(&self, op: &OpCall<'_>, word: u64, result: u32);
    /// The host is about to wait, or has waited, for the device.
    fn synchronised(&self);
    /// A capture is about to begin (`true`) on a stream of the job, or has ended or come to
    /// nothing. Many a driver call of any thread ruins a capture: once `capturing(true)` has
    /// returned, no such call of ours may be under way, and none may begin until the end.
    fn capturing(&self, begin: bool);
    /// A context may be about to be destroyed (a release of a primary context need not be its
    /// last, and a job may make another): bring files up to date. Never in a forked child.
    fn context_ends(&self) {}
    /// A context has been destroyed, and everything made in it.
    fn context_gone(&self, _context: usize) {}
    /// The process is about to exit: finish files now. At most once, never in a forked child.
    fn closing(&self);
    /// Whether converted memory may be populated on its device when it is made. Not where memory is kept
    /// on the host though the devices may hold all of it (an emulated card, a plan that sends some
    /// there), nor where first uses are what is recorded.
    fn populates(&self) -> bool {
        true
    }
    /// Whether ops are written down. Their numbers and the hash of their shape are for that alone,
    /// and no small part of a hook's cost. Asked once, after `started`.
    fn writes_down(&self) -> bool {
        true
    }
}

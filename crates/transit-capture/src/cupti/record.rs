//! CUPTI's activity records, as far as a trace needs them. Every version of a record begins with
//! the fields read here, at the same offsets, from CUDA 11.4 to 13.4 (compared in cudarc's
//! bindings); of unified-memory records the first 64 bytes are `Counter2` and `Counter3` alike.
//! So only these prefixes are read, and nothing depends on the version CUPTI was built with.

use std::ffi::{CStr, c_char};
use std::mem::offset_of;

use cudarc::cupti::sys::{
    CUpti_ActivityKernel9 as Kernel, CUpti_ActivityMemcpy6 as Memcpy,
    CUpti_ActivityMemcpyPtoP4 as PeerCopy, CUpti_ActivityMemset4 as Memset,
    CUpti_ActivityUnifiedMemoryCounter2 as Um,
};
use transit_format::plan::name_hash;
use transit_format::trace::model::OpKind;

/// `CUPTI_ACTIVITY_KIND_MEMCPY`.
pub(super) const MEMCPY: u32 = 1;
/// `CUPTI_ACTIVITY_KIND_MEMSET`.
pub(super) const MEMSET: u32 = 2;
/// `CUPTI_ACTIVITY_KIND_KERNEL`, which CUPTI uses when concurrent tracing is impossible.
const SERIAL_KERNEL: u32 = 3;
/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`.
pub(super) const KERNEL: u32 = 10;
/// `CUPTI_ACTIVITY_KIND_MEMCPY2`: copies between devices, and those between the host and memory of a
/// managed pool (H200, CUPTI 13.0, 2026-12-01). Comes where [`MEMCPY`] is asked for.
const PEER_COPY: u32 = 22;
/// `CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER`.
pub(super) const UNIFIED_MEMORY: u32 = 25;

/// `CUpti_ActivityUnifiedMemoryCounterConfig`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(super) struct UmConfig {
    /// `CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES`; ignored since CUDA 7.
    pub(super) scope: u32,
    /// A [`Counter`] as CUPTI numbers them.
    pub(super) kind: u32,
    pub(super) device: u32,
    pub(super) enable: u32,
}

/// Kinds of unified-memory record (`CUpti_ActivityUnifiedMemoryCounterKind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    HtoD,
    DtoH,
    DtoD,
    CpuFault,
    GpuFault,
    RemoteMap,
}

impl Counter {
    pub(super) fn code(self) -> u32 {
        match self {
            Self::HtoD => 1,
            Self::DtoH => 2,
            Self::CpuFault => 3,
            Self::GpuFault => 4,
            Self::RemoteMap => 7,
            Self::DtoD => 8,
        }
    }

    fn of(code: u32) -> Option<Self> {
        [
            Self::HtoD,
            Self::DtoH,
            Self::CpuFault,
            Self::GpuFault,
            Self::RemoteMap,
            Self::DtoD,
        ]
        .into_iter()
        .find(|counter| counter.code() == code)
    }
}

/// A kernel, memset or memcpy that ran. Times are CUPTI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) kind: OpKind,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) correlation: u32,
    /// 0 outside graphs.
    pub(crate) graph: u32,
    /// Hash of a kernel's name, 0 if CUPTI gives none.
    pub(crate) name_hash: u64,
    /// Address of that name: a NUL-terminated string that CUPTI keeps for the process' life.
    pub(crate) name: u64,
    /// Size of a memset or memcpy.
    pub(crate) bytes: u64,
}

/// A unified-memory event. Times are CUPTI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paging {
    pub(crate) counter: Counter,
    /// Bytes, or fault groups, or a program counter.
    pub(crate) value: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) address: u64,
    pub(crate) source: u32,
    pub(crate) target: u32,
    /// Migration cause, or access type of a fault.
    pub(crate) flags: u32,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Work(Work),
    Paging(Paging),
    /// Its times are 0 or run backwards: it is counted and left out.
    BadTime,
    /// Nothing a trace holds.
    Other,
}

/// The first bytes of a record.
struct Prefix<'a>(&'a [u8]);

impl Prefix<'_> {
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(|tail| tail.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        let bytes = self.0.get(at..).and_then(|tail| tail.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

const KERNEL_BYTES: usize = offset_of!(Kernel, graphId) + 4;
const MEMSET_BYTES: usize = offset_of!(Memset, graphId) + 4;
const MEMCPY_BYTES: usize = offset_of!(Memcpy, graphId) + 4;
const PEER_COPY_BYTES: usize = offset_of!(PeerCopy, graphId) + 4;
const UM_BYTES: usize = size_of::<Um>();

/// Reads the record at `at`.
///
/// # Safety
/// `at` is a record that `cuptiActivityGetNextRecord` gave, in a buffer not yet handed back.
pub(super) unsafe fn read(at: *const u8) -> Record {
    // SAFETY: every record begins with its kind, a u32; buffers are 8-byte aligned.
    let kind = unsafe { at.cast::<u32>().read_unaligned() };
    let bytes = match kind {
        KERNEL | SERIAL_KERNEL => KERNEL_BYTES,
        MEMSET => MEMSET_BYTES,
        MEMCPY => MEMCPY_BYTES,
        PEER_COPY => PEER_COPY_BYTES,
        UNIFIED_MEMORY => UM_BYTES,
        _ => return Record::Other,
    };
    // SAFETY: a record of that kind is at least that long in every supported CUPTI, and the
    // buffer outlives the slice, which ends with this function.
    let prefix = Prefix(unsafe { std::slice::from_raw_parts(at, bytes) });
    match kind {
        UNIFIED_MEMORY => paging(&prefix),
        MEMSET => timed(Work {
            kind: OpKind::Memset,
            start: prefix.u64(offset_of!(Memset, start)),
            end: prefix.u64(offset_of!(Memset, end)),
            context: prefix.u32(offset_of!(Memset, contextId)),
            stream: prefix.u32(offset_of!(Memset, streamId)),
            correlation: prefix.u32(offset_of!(Memset, correlationId)),
            graph: prefix.u32(offset_of!(Memset, graphId)),
            name_hash: 0,
            name: 0,
            bytes: prefix.u64(offset_of!(Memset, bytes)),
        }),
        MEMCPY => timed(Work {
            kind: OpKind::Memcpy,
            start: prefix.u64(offset_of!(Memcpy, start)),
            end: prefix.u64(offset_of!(Memcpy, end)),
            context: prefix.u32(offset_of!(Memcpy, contextId)),
            stream: prefix.u32(offset_of!(Memcpy, streamId)),
            correlation: prefix.u32(offset_of!(Memcpy, correlationId)),
            graph: prefix.u32(offset_of!(Memcpy, graphId)),
            name_hash: 0,
            name: 0,
            bytes: prefix.u64(offset_of!(Memcpy, bytes)),
        }),
        PEER_COPY => timed(Work {
            kind: OpKind::Memcpy,
            start: prefix.u64(offset_of!(PeerCopy, start)),
            end: prefix.u64(offset_of!(PeerCopy, end)),
            context: prefix.u32(offset_of!(PeerCopy, contextId)),
            stream: prefix.u32(offset_of!(PeerCopy, streamId)),
            correlation: prefix.u32(offset_of!(PeerCopy, correlationId)),
            graph: prefix.u32(offset_of!(PeerCopy, graphId)),
            name_hash: 0,
            name: 0,
            bytes: prefix.u64(offset_of!(PeerCopy, bytes)),
        }),
        _ => timed(kernel(&prefix)),
    }
}

fn kernel(prefix: &Prefix<'_>) -> Work {
    Work {
        kind: OpKind::Kernel,
        start: prefix.u64(offset_of!(Kernel, start)),
        end: prefix.u64(offset_of!(Kernel, end)),
        context: prefix.u32(offset_of!(Kernel, contextId)),
        stream: prefix.u32(offset_of!(Kernel, streamId)),
        correlation: prefix.u32(offset_of!(Kernel, correlationId)),
        graph: prefix.u32(offset_of!(Kernel, graphId)),
        name_hash: hash_at(prefix.u64(offset_of!(Kernel, name))),
        name: prefix.u64(offset_of!(Kernel, name)),
        bytes: 0,
    }
}

fn hash_at(address: u64) -> u64 {
    let Ok(address) = usize::try_from(address) else {
        return 0;
    };
    if address == 0 {
        return 0;
    }
    // SAFETY: CUPTI keeps a kernel's name as a NUL-terminated string for the process' life.
    let name = unsafe { CStr::from_ptr(address as *const c_char) };
    name_hash(name.to_bytes())
}

fn timed(work: Work) -> Record {
    if work.start == 0 || work.end < work.start {
        return Record::BadTime;
    }
    Record::Work(work)
}

fn paging(prefix: &Prefix<'_>) -> Record {
    let Some(counter) = Counter::of(prefix.u32(offset_of!(Um, counterKind))) else {
        return Record::Other;
    };
    let start = prefix.u64(offset_of!(Um, start));
    let end = prefix.u64(offset_of!(Um, end));
    // Only transfers are said to end; a CPU fault has one time.
    let end = if end == 0 && counter != Counter::HtoD && counter != Counter::DtoH {
        start
    } else {
        end
    };
    if start == 0 || end < start {
        return Record::BadTime;
    }
    Record::Paging(Paging {
        counter,
        value: prefix.u64(offset_of!(Um, value)),
        start,
        end,
        address: prefix.u64(offset_of!(Um, address)),
        source: prefix.u32(offset_of!(Um, srcId)),
        target: prefix.u32(offset_of!(Um, dstId)),
        flags: prefix.u32(offset_of!(Um, flags)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn um_record(counter: u32, start: u64, end: u64) -> Record {
        let mut bytes = [0_u64; 13];
        let bytes: &mut [u8] =
            // SAFETY: 13 u64 are 104 plain bytes, borrowed as such.
            unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), 104) };
        put(bytes, 0, &25_u32.to_ne_bytes());
        put(bytes, 4, &counter.to_ne_bytes());
        put(bytes, 8, &65536_u64.to_ne_bytes());
        put(bytes, 16, &start.to_ne_bytes());
        put(bytes, 24, &end.to_ne_bytes());
        put(bytes, 32, &0x7f00_0000_0000_u64.to_ne_bytes());
        put(bytes, 56, &2_u32.to_ne_bytes());
        // SAFETY: `bytes` is a whole record.
        unsafe { read(bytes.as_ptr()) }
    }

    #[test]
    fn a_transfer_is_read_at_the_documented_offsets() {
        let Record::Paging(paging) = um_record(1, 100, 200) else {
            panic!("no transfer")
        };
        assert_eq!((paging.counter, paging.value), (Counter::HtoD, 65536));
        assert_eq!((paging.start, paging.end), (100, 200));
        assert_eq!((paging.address, paging.flags), (0x7f00_0000_0000, 2));
    }

    #[test]
    fn impossible_times_are_told_and_unknown_counters_are_left_alone() {
        assert_eq!(um_record(2, 200, 100), Record::BadTime);
        assert_eq!(um_record(2, 0, 100), Record::BadTime);
        assert_eq!(um_record(5, 100, 200), Record::Other);
        assert!(matches!(um_record(3, 100, 0), Record::Paging(_)));
    }

    #[test]
    fn versions_of_a_record_share_the_prefix() {
        use cudarc::cupti::sys;
        assert_eq!(
            offset_of!(sys::CUpti_ActivityKernel5, start),
            offset_of!(Kernel, start)
        );
        assert_eq!(
            offset_of!(sys::CUpti_ActivityKernel5, graphId),
            offset_of!(Kernel, graphId)
        );
        assert_eq!(
            offset_of!(sys::CUpti_ActivityKernel5, name),
            offset_of!(Kernel, name)
        );
        let newest = offset_of!(sys::CUpti_ActivityUnifiedMemoryCounter3, flags);
        assert_eq!(newest, offset_of!(Um, flags));
        assert_eq!(
            (
                UM_BYTES,
                size_of::<sys::CUpti_ActivityUnifiedMemoryCounter3>()
            ),
            (64, 104)
        );
    }
}

//! An op as words of a ring.
//!
//! | word | holds |
//! |---|---|
//! | 0 | length in words (16 bits), kind (8), flags (8), number of pointers (32) |
//! | 1 | sequence number |
//! | 2 | time of issue, ns |
//! | 3 | stream (low 32 bits), function (high) |
//! | 4 | shape (low), kernels it will run (high) |
//! | 5, if flagged | a graph's memsets (low) and copies (high); else the bytes a memset or copy writes |
//! | then, per pointer | allocation and bit 32 if an extent follows; offset; extent if any |

use transit_format::ids::{AllocId, FunctionId, OpSeq, StreamId};
use transit_format::trace::model::{OpKind, Pointer};
use transit_hook::{DeviceRecords, OpCall};

use crate::ring::Ring;
use crate::sampling::Asked;

const FIXED_WORDS: usize = 5;
/// Further words of an op and of each of its pointers, at most.
const MORE_WORDS: usize = 1;
const POINTER_WORDS: usize = 3;
/// The length field has 16 bits; no kernel has that many parameters.
const MOST_POINTERS: usize = (0xffff - FIXED_WORDS - MORE_WORDS) / POINTER_WORDS;
const HAS_EXTENT: u64 = 1 << 32;
const FLAG_VOID: u64 = 1;
/// What the device will run is not known.
const FLAG_OPEN: u64 = 2;
/// Word 5 is there.
const FLAG_MORE: u64 = 4;
/// [`Asked::Doubtful`] and [`Asked::No`].
const FLAG_DOUBTFUL: u64 = 8;
const FLAG_UNASKED: u64 = 16;

/// An op as the writer thread sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpRecord {
    /// The hook's number for it.
    pub(crate) seq: OpSeq,
    pub(crate) kind: OpKind,
    /// The driver refused it: it takes its number and nothing else.
    pub(crate) void: bool,
    /// Whether CUPTI has a record of it.
    pub(crate) asked: Asked,
    /// When it was issued, on the trace's clock.
    pub(crate) raw_ns: u64,
    pub(crate) stream: StreamId,
    pub(crate) function: FunctionId,
    pub(crate) shape: u32,
    pub(crate) records: DeviceRecords,
    /// Bytes a memset or copy writes, else 0.
    pub(crate) payload_bytes: u64,
    pub(crate) pointers: Vec<Pointer>,
}

fn kind_code(kind: OpKind) -> u64 {
    match kind {
        OpKind::Kernel => 0,
        OpKind::Graph => 1,
        OpKind::Memset => 2,
        OpKind::Memcpy => 3,
    }
}

fn kind_of(code: u64) -> OpKind {
    match code {
        1 => OpKind::Graph,
        2 => OpKind::Memset,
        3 => OpKind::Memcpy,
        _ => OpKind::Kernel,
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// How an op was issued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issued {
    /// When, on the trace's clock.
    pub(crate) raw_ns: u64,
    /// The driver refused it.
    pub(crate) void: bool,
    /// Whether CUPTI has a record of it.
    pub(crate) asked: Asked,
}

/// Writes `op` into `ring`. False if the ring was full.
pub(crate) fn push(ring: &Ring, op: &OpCall<'_>, issued: Issued) -> bool {
    let Issued {
        raw_ns,
        void,
        asked,
    } = issued;
    let pointers = if void { &[][..] } else { op.pointers };
    let pointers = pointers.get(..MOST_POINTERS).unwrap_or(pointers);
    let more = match op.kind {
        OpKind::Graph => pair(op.records.memsets, op.records.memcpys),
        _ => op.payload_bytes,
    };
    let most = FIXED_WORDS + MORE_WORDS + POINTER_WORDS * pointers.len();
    let Some(mut room) = ring.reserve(most) else {
        return false;
    };
    let flags = (u64::from(void) * FLAG_VOID)
        | (u64::from(op.records.open) * FLAG_OPEN)
        | (u64::from(more != 0) * FLAG_MORE)
        | match asked {
            Asked::Yes => 0,
            Asked::Doubtful => FLAG_DOUBTFUL,
            Asked::No => FLAG_UNASKED,
        };
    let count = pointers.len() as u64;
    room.put(op.seq.0);
    room.put(raw_ns);
    room.put(pair(op.stream.0, op.function.0));
    room.put(pair(op.shape, op.records.kernels));
    if more != 0 {
        room.put(more);
    }
    for pointer in pointers {
        let extent = if pointer.bytes == 0 { 0 } else { HAS_EXTENT };
        room.put(u64::from(pointer.alloc.0) | extent);
        room.put(pointer.offset);
        if pointer.bytes != 0 {
            room.put(pointer.bytes);
        }
    }
    room.publish(|words| words as u64 | (kind_code(op.kind) << 16) | (flags << 24) | (count << 32));
    true
}

/// Length in words of the message that begins with `first`.
pub(crate) fn length(first: u64) -> usize {
    usize::try_from(first & 0xffff).unwrap_or(0)
}

/// Reads one message back; `None` for anything [`push`] does not write.
pub(crate) fn decode(words: &[u64]) -> Option<OpRecord> {
    let (fixed, mut rest) = words.split_first_chunk::<FIXED_WORDS>()?;
    let [first, seq, raw_ns, place, numbers] = *fixed;
    let kind = kind_of((first >> 16) & 0xff);
    let flags = (first >> 24) & 0xff;
    let mut more = 0;
    if flags & FLAG_MORE != 0 {
        let (word, tail) = rest.split_first()?;
        (more, rest) = (*word, tail);
    }
    let graph = kind == OpKind::Graph;
    let records = DeviceRecords {
        kernels: high(numbers),
        memsets: if graph {
            low(more)
        } else {
            u32::from(kind == OpKind::Memset)
        },
        memcpys: if graph {
            high(more)
        } else {
            u32::from(kind == OpKind::Memcpy)
        },
        open: flags & FLAG_OPEN != 0,
    };
    let mut pointers = Vec::with_capacity(usize::try_from(first >> 32).ok()?.min(MOST_POINTERS));
    for _ in 0..first >> 32 {
        let ([alloc, offset], tail) = rest.split_first_chunk::<2>()?;
        rest = tail;
        let mut bytes = 0;
        if alloc & HAS_EXTENT != 0 {
            let (extent, tail) = rest.split_first()?;
            bytes = *extent;
            rest = tail;
        }
        pointers.push(Pointer {
            alloc: AllocId(low(*alloc)),
            offset: *offset,
            bytes,
        });
    }
    Some(OpRecord {
        seq: OpSeq(seq),
        kind,
        void: flags & FLAG_VOID != 0,
        asked: match flags & (FLAG_DOUBTFUL | FLAG_UNASKED) {
            0 => Asked::Yes,
            FLAG_UNASKED => Asked::No,
            _ => Asked::Doubtful,
        },
        raw_ns,
        stream: StreamId(low(place)),
        function: FunctionId(high(place)),
        shape: low(numbers),
        records,
        payload_bytes: if graph { 0 } else { more },
        pointers,
    })
}

#[cfg(test)]
mod tests {
    use transit_hook::PointerArg;

    use super::*;

    fn sample(pointers: &[PointerArg]) -> OpCall<'_> {
        OpCall {
            seq: OpSeq(u64::MAX - 1),
            kind: OpKind::Memcpy,
            stream: StreamId(7),
            stream_handle: 1,
            device: 0,
            function: FunctionId(u32::MAX),
            name_hash: 5,
            shape: 0xdead_beef,
            records: DeviceRecords::one(OpKind::Memcpy),
            payload_bytes: 1 << 50,
            pointers,
            capturing: false,
            excluded: false,
        }
    }

    fn round_trip(op: &OpCall<'_>, void: bool) -> OpRecord {
        let ring = Ring::new(64);
        let issued = Issued {
            raw_ns: 99,
            void,
            asked: if void { Asked::Doubtful } else { Asked::No },
        };
        assert!(push(&ring, op, issued));
        let mut words = Vec::new();
        assert!(ring.take(&mut words, length));
        assert!(!ring.take(&mut Vec::new(), length), "exactly one message");
        decode(&words).unwrap()
    }

    #[test]
    fn an_op_survives_its_ring() {
        let pointers = [
            PointerArg {
                alloc: AllocId(u32::MAX),
                offset: 1 << 40,
                bytes: 0,
            },
            PointerArg {
                alloc: AllocId(3),
                offset: 0,
                bytes: u64::MAX,
            },
        ];
        let op = sample(&pointers);
        let back = round_trip(&op, false);
        assert_eq!((back.seq, back.kind, back.void), (op.seq, op.kind, false));
        assert_eq!(back.asked, Asked::No);
        assert_eq!((back.stream, back.function), (op.stream, op.function));
        assert_eq!((back.shape, back.raw_ns), (op.shape, 99));
        assert_eq!(
            (back.records, back.payload_bytes),
            (op.records, op.payload_bytes)
        );
        let expected = pointers.map(|p| Pointer {
            alloc: p.alloc,
            offset: p.offset,
            bytes: p.bytes,
        });
        assert_eq!(back.pointers, expected);
        let void = round_trip(&op, true);
        assert!(void.void && void.asked == Asked::Doubtful && void.pointers.is_empty());
    }

    #[test]
    fn what_a_graph_will_run_survives_its_ring() {
        let records = DeviceRecords {
            kernels: 1 << 20,
            memsets: 3,
            memcpys: u32::MAX,
            open: true,
        };
        for memsets in [3, 0] {
            let op = OpCall {
                kind: OpKind::Graph,
                records: DeviceRecords { memsets, ..records },
                payload_bytes: 0,
                ..sample(&[])
            };
            let back = round_trip(&op, false);
            assert_eq!((back.records, back.payload_bytes), (op.records, 0));
        }
    }

    #[test]
    fn a_cut_message_is_refused() {
        assert_eq!(decode(&[5, 0, 0]), None);
        assert_eq!(decode(&[7 | (1 << 32), 0, 0, 0, 0, 1]), None);
    }
}

//! CUPTI's unified-memory records as events of a trace.

use transit_format::ids::{Nanos, OpSeq};
use transit_format::trace::model::{Cause, Direction, Event, Fault, FaultKind, Migration};

use crate::cupti::{Counter, Paging};
use crate::places::Piece;

/// `CUPTI_SOURCE_ID` of the host.
const HOST: u32 = u32::MAX;

/// Bytes the record speaks of from its address on; fault records name a page and no extent.
pub(crate) fn extent(paging: &Paging) -> u64 {
    match paging.counter {
        Counter::HtoD | Counter::DtoH | Counter::DtoD | Counter::RemoteMap => paging.value,
        Counter::CpuFault | Counter::GpuFault => 1,
    }
}

/// The part of a record that lies in one allocation.
pub(crate) fn event(
    paging: &Paging,
    piece: &Piece,
    start_ns: Nanos,
    end_ns: Nanos,
    op: Option<OpSeq>,
) -> Event {
    let direction = match paging.counter {
        Counter::HtoD => Direction::HtoD,
        Counter::DtoH => Direction::DtoH,
        Counter::DtoD => Direction::DtoD,
        Counter::CpuFault => return fault(paging, piece, FaultKind::Cpu, start_ns, end_ns, op),
        Counter::RemoteMap => {
            return fault(paging, piece, FaultKind::RemoteMap, start_ns, end_ns, op);
        }
        Counter::GpuFault => {
            // CUpti_ActivityUnifiedMemoryAccessType: 1 read, 2 write, 3 atomic, 4 prefetch.
            let reads = paging.flags == 1 || paging.flags == 4;
            let kind = if reads {
                FaultKind::Read
            } else {
                FaultKind::Write
            };
            return fault(paging, piece, kind, start_ns, end_ns, op);
        }
    };
    Event::Migration(Migration {
        alloc: piece.alloc,
        offset: piece.offset,
        bytes: piece.bytes,
        direction,
        cause: cause(paging.flags),
        device: device(paging),
        start_ns,
        end_ns,
        op,
    })
}

fn fault(
    paging: &Paging,
    piece: &Piece,
    kind: FaultKind,
    start_ns: Nanos,
    end_ns: Nanos,
    op: Option<OpSeq>,
) -> Event {
    let value = if kind == FaultKind::RemoteMap {
        piece.bytes
    } else {
        paging.value
    };
    let (alloc, offset) = (piece.alloc, piece.offset);
    Event::Fault(Fault {
        alloc,
        offset,
        value,
        kind,
        start_ns,
        end_ns,
        op,
    })
}

/// The device a transfer went to or came from.
pub(crate) fn device(paging: &Paging) -> u32 {
    let device = if paging.counter == Counter::DtoH {
        paging.source
    } else {
        paging.target
    };
    if device == HOST { 0 } else { device }
}

/// `CUpti_ActivityUnifiedMemoryMigrationCause`.
pub(crate) fn cause(flags: u32) -> Cause {
    match flags {
        1 => Cause::User,
        2 => Cause::Coherence,
        3 => Cause::Prefetch,
        4 => Cause::Eviction,
        5 => Cause::AccessCounters,
        _ => Cause::Unknown,
    }
}

//! Migrations and faults.
//!
//! ```text
//! migrations  columns alloc (signed, difference), gap (signed: offset less the end of the
//!             migration before), bytes (unsigned), class (unsigned: direction + 4 x cause),
//!             device (unsigned), gap and duration (as in op times), op (signed, difference;
//!             0 none, else op + 1)
//! faults      columns alloc (signed, difference), offset (signed, difference), value (unsigned),
//!             kind (unsigned), gap and duration, op (as above)
//! ```

use super::super::block::Flaw;
use super::super::coding::{Sink, Source};
use super::super::column::{
    get_delta, get_signed, get_unsigned, put_delta, put_signed, put_unsigned,
};
use super::super::model::{Cause, Direction, Fault, FaultKind, Migration};
use super::narrow;
use super::times::{get_spans, put_spans};
use crate::ids::{AllocId, Nanos, OpSeq};

const DIRECTIONS: [Direction; 3] = [Direction::HtoD, Direction::DtoH, Direction::DtoD];
const CAUSES: [Cause; 6] = [
    Cause::Unknown,
    Cause::User,
    Cause::Coherence,
    Cause::Prefetch,
    Cause::Eviction,
    Cause::AccessCounters,
];
const FAULT_KINDS: [FaultKind; 4] = [
    FaultKind::Read,
    FaultKind::Write,
    FaultKind::RemoteMap,
    FaultKind::Cpu,
];

fn code_of<T: PartialEq>(list: &[T], value: &T) -> u64 {
    list.iter()
        .position(|known| known == value)
        .map_or(0, |code| code as u64)
}

fn value_of<T: Copy>(list: &[T], code: u64) -> Option<T> {
    list.get(usize::try_from(code).ok()?).copied()
}

fn op_code(op: Option<OpSeq>) -> u64 {
    op.map_or(0, |op| op.0.saturating_add(1))
}

fn op_from(code: u64) -> Option<OpSeq> {
    code.checked_sub(1).map(OpSeq)
}

/// Appends migrations.
pub(super) fn put_migrations(sink: &mut Sink, migrations: &[Migration]) {
    put_delta(
        sink,
        migrations
            .iter()
            .map(|migration| u64::from(migration.alloc.0)),
    );
    let mut end = 0_u64;
    let gaps: Vec<i64> = migrations
        .iter()
        .map(|migration| {
            let gap = migration.offset.wrapping_sub(end).cast_signed();
            end = migration.offset.wrapping_add(migration.bytes);
            gap
        })
        .collect();
    put_signed(sink, &gaps);
    let column =
        |value: &dyn Fn(&Migration) -> u64| migrations.iter().map(value).collect::<Vec<_>>();
    put_unsigned(sink, &column(&|migration| migration.bytes));
    let class = |migration: &Migration| {
        code_of(&DIRECTIONS, &migration.direction) + 4 * code_of(&CAUSES, &migration.cause)
    };
    put_unsigned(sink, &column(&class));
    put_unsigned(sink, &column(&|migration| u64::from(migration.device)));
    put_spans(
        sink,
        migrations
            .iter()
            .map(|migration| (migration.start_ns.0, migration.end_ns.0)),
    );
    put_delta(
        sink,
        migrations.iter().map(|migration| op_code(migration.op)),
    );
}

/// Reads migrations.
pub(super) fn get_migrations(
    source: &mut Source<'_>,
    count: usize,
) -> Result<Vec<Migration>, Flaw> {
    source.enter("migrations");
    let allocs = get_delta(source, count)?;
    let gaps = get_signed(source, count)?;
    let sizes = get_unsigned(source, count)?;
    let classes = get_unsigned(source, count)?;
    let devices = get_unsigned(source, count)?;
    let spans = get_spans(source, count)?;
    let ops = get_delta(source, count)?;
    let places = allocs.into_iter().zip(gaps).zip(sizes);
    let kinds = classes.into_iter().zip(devices);
    let mut end = 0_u64;
    let mut migrations = Vec::with_capacity(count);
    for (((place, kind), (start_ns, end_ns)), op) in places.zip(kinds).zip(spans).zip(ops) {
        let ((alloc, gap), bytes) = place;
        let (class, device) = kind;
        let directed = value_of(&DIRECTIONS, class % 4).zip(value_of(&CAUSES, class / 4));
        let Some((direction, cause)) = directed else {
            return Err(source.flaw(format!("unknown migration class {class}")));
        };
        let offset = end.wrapping_add_signed(gap);
        end = offset.wrapping_add(bytes);
        migrations.push(Migration {
            alloc: AllocId(narrow(source, alloc, "allocation")?),
            offset,
            bytes,
            direction,
            cause,
            device: narrow(source, device, "device")?,
            start_ns: Nanos(start_ns),
            end_ns: Nanos(end_ns),
            op: op_from(op),
        });
    }
    Ok(migrations)
}

/// Appends faults.
pub(super) fn put_faults(sink: &mut Sink, faults: &[Fault]) {
    put_delta(sink, faults.iter().map(|fault| u64::from(fault.alloc.0)));
    put_delta(sink, faults.iter().map(|fault| fault.offset));
    let column = |value: &dyn Fn(&Fault) -> u64| faults.iter().map(value).collect::<Vec<_>>();
    put_unsigned(sink, &column(&|fault| fault.value));
    put_unsigned(sink, &column(&|fault| code_of(&FAULT_KINDS, &fault.kind)));
    put_spans(
        sink,
        faults
            .iter()
            .map(|fault| (fault.start_ns.0, fault.end_ns.0)),
    );
    put_delta(sink, faults.iter().map(|fault| op_code(fault.op)));
}

/// Reads faults.
pub(super) fn get_faults(source: &mut Source<'_>, count: usize) -> Result<Vec<Fault>, Flaw> {
    source.enter("faults");
    let allocs = get_delta(source, count)?;
    let offsets = get_delta(source, count)?;
    let values = get_unsigned(source, count)?;
    let kinds = get_unsigned(source, count)?;
    let spans = get_spans(source, count)?;
    let ops = get_delta(source, count)?;
    let places = allocs
        .into_iter()
        .zip(offsets)
        .zip(values.into_iter().zip(kinds));
    let mut faults = Vec::with_capacity(count);
    for ((((alloc, offset), (value, kind)), (start_ns, end_ns)), op) in places.zip(spans).zip(ops) {
        let Some(kind) = value_of(&FAULT_KINDS, kind) else {
            return Err(source.flaw(format!("unknown fault kind {kind}")));
        };
        faults.push(Fault {
            alloc: AllocId(narrow(source, alloc, "allocation")?),
            offset,
            value,
            kind,
            start_ns: Nanos(start_ns),
            end_ns: Nanos(end_ns),
            op: op_from(op),
        });
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{exercise, noise, read_all};
    use super::*;

    fn op() -> impl Strategy<Value = Option<OpSeq>> {
        // The last number has no place of its own: no process issues 2^64 ops.
        prop::option::of((0..u64::MAX).prop_map(OpSeq))
    }

    fn migration() -> impl Strategy<Value = Migration> {
        let kinds = (0_u64..3, 0_u64..6);
        (any::<[u32; 2]>(), any::<[u64; 4]>(), kinds, op()).prop_map(
            |([alloc, device], [offset, bytes, start, end], (direction, cause), op)| Migration {
                alloc: AllocId(alloc),
                offset,
                bytes,
                direction: value_of(&DIRECTIONS, direction).unwrap(),
                cause: value_of(&CAUSES, cause).unwrap(),
                device,
                start_ns: Nanos(start),
                end_ns: Nanos(end),
                op,
            },
        )
    }

    fn fault() -> impl Strategy<Value = Fault> {
        (any::<u32>(), any::<[u64; 4]>(), 0_u64..4, op()).prop_map(
            |(alloc, [offset, value, start, end], kind, op)| Fault {
                alloc: AllocId(alloc),
                offset,
                value,
                kind: value_of(&FAULT_KINDS, kind).unwrap(),
                start_ns: Nanos(start),
                end_ns: Nanos(end),
                op,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn migrations_return(values in prop::collection::vec(migration(), 1..6)) {
            let put = |sink: &mut Sink| put_migrations(sink, &values);
            exercise(&values, put, |source| get_migrations(source, values.len()));
        }

        #[test]
        fn faults_return(values in prop::collection::vec(fault(), 1..6)) {
            let put = |sink: &mut Sink| put_faults(sink, &values);
            exercise(&values, put, |source| get_faults(source, values.len()));
        }

        #[test]
        fn noise_does_no_harm(bytes in noise(), count in 0_usize..300) {
            let _ = read_all(&bytes, |source| get_migrations(source, count));
            let _ = read_all(&bytes, |source| get_faults(source, count));
        }
    }
}

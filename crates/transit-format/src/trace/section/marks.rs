//! Marks and totals.
//!
//! ```text
//! marks   columns kind (unsigned), at_op (signed, difference), at_ns (same)
//! totals  nine varints: ops, CUPTI ops, hooked ops, converted peak bytes, unconverted
//!         peak bytes, then drops: ops, CUPTI, unplaced, bad times; with flag 2 of the block header,
//!         an optional check: hooked, confirmed and unseen for each of kernels, memsets and copies,
//!         launches of open graphs, unseen kernels (list of name and count); with flag 4 then the
//!         number of ops that CUPTI was not asked to time
//! ```

use super::super::block::Flaw;
use super::super::check::{Check, Counted};
use super::super::coding::{Sink, Source};
use super::super::column::{get_delta, get_unsigned, put_delta, put_unsigned};
use super::super::model::{Drops, Mark, MarkKind, Totals};
use crate::ids::{Nanos, OpSeq};

const KINDS: [MarkKind; 6] = [
    MarkKind::Sync,
    MarkKind::CaptureBegin,
    MarkKind::CaptureEnd,
    MarkKind::WindowBegin,
    MarkKind::WindowEnd,
    MarkKind::Iteration,
];

/// Appends marks.
pub(super) fn put_marks(sink: &mut Sink, marks: &[Mark]) {
    let code = |mark: &Mark| {
        KINDS
            .iter()
            .position(|kind| *kind == mark.kind)
            .map_or(0, |code| code as u64)
    };
    put_unsigned(sink, &marks.iter().map(code).collect::<Vec<_>>());
    put_delta(sink, marks.iter().map(|mark| mark.at_op.0));
    put_delta(sink, marks.iter().map(|mark| mark.at_ns.0));
}

/// Reads marks.
pub(super) fn get_marks(source: &mut Source<'_>, count: usize) -> Result<Vec<Mark>, Flaw> {
    source.enter("marks");
    let kinds = get_unsigned(source, count)?;
    let at_ops = get_delta(source, count)?;
    let at_times = get_delta(source, count)?;
    kinds
        .into_iter()
        .zip(at_ops.into_iter().zip(at_times))
        .map(|(code, (at_op, at_ns))| {
            let kind = usize::try_from(code)
                .ok()
                .and_then(|code| KINDS.get(code))
                .copied();
            let kind = kind.ok_or_else(|| source.flaw(format!("unknown mark kind {code}")))?;
            Ok(Mark {
                kind,
                at_op: OpSeq(at_op),
                at_ns: Nanos(at_ns),
            })
        })
        .collect()
}

/// Appends totals.
pub(super) fn put_totals(sink: &mut Sink, totals: &Totals) {
    let Totals {
        ops,
        cupti_ops,
        hooked_ops,
        ..
    } = *totals;
    sink.put((ops, cupti_ops, hooked_ops));
    sink.put((totals.converted_peak_bytes, totals.unconverted_peak_bytes));
    let Drops {
        ops,
        cupti,
        unplaced,
        bad_times,
    } = totals.drops;
    sink.put((ops, cupti, unplaced, bad_times));
    put_check(sink, totals.check.as_ref());
    if totals.unasked_ops > 0 {
        sink.put(totals.unasked_ops);
    }
}

fn put_check(sink: &mut Sink, check: Option<&Check>) {
    sink.put(check.is_some());
    let Some(check) = check else { return };
    for counted in [check.kernels, check.memsets, check.memcpys] {
        sink.put((counted.hooked, counted.confirmed, counted.unseen));
    }
    sink.put(check.open_launches);
    sink.put(&check.unseen_kernels);
}

fn get_check(source: &mut Source<'_>) -> Result<Option<Check>, Flaw> {
    if !source.get::<bool>()? {
        return Ok(None);
    }
    let mut counted = || {
        let (hooked, confirmed, unseen) = source.get()?;
        Ok(Counted {
            hooked,
            confirmed,
            unseen,
        })
    };
    let (kernels, memsets, memcpys) = (counted()?, counted()?, counted()?);
    Ok(Some(Check {
        kernels,
        memsets,
        memcpys,
        open_launches: source.get()?,
        unseen_kernels: source.get()?,
    }))
}

/// Reads totals.
pub(super) fn get_totals(
    source: &mut Source<'_>,
    checked: bool,
    sampled: bool,
) -> Result<Totals, Flaw> {
    source.enter("totals");
    let (ops, cupti_ops, hooked_ops) = source.get()?;
    let (converted_peak_bytes, unconverted_peak_bytes) = source.get()?;
    let (dropped_ops, cupti, unplaced, bad_times) = source.get()?;
    let drops = Drops {
        ops: dropped_ops,
        cupti,
        unplaced,
        bad_times,
    };
    Ok(Totals {
        ops,
        cupti_ops,
        hooked_ops,
        converted_peak_bytes,
        unconverted_peak_bytes,
        drops,
        check: if checked { get_check(source)? } else { None },
        unasked_ops: if sampled { source.get()? } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{exercise, noise, read_all};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn marks_return(values in prop::collection::vec((0_usize..6, any::<[u64; 2]>()), 1..8)) {
            let mark = |(kind, [at_op, at_ns]): (usize, [u64; 2])| Mark {
                kind: KINDS[kind],
                at_op: OpSeq(at_op),
                at_ns: Nanos(at_ns),
            };
            let values: Vec<Mark> = values.into_iter().map(mark).collect();
            let put = |sink: &mut Sink| put_marks(sink, &values);
            exercise(&values, put, |source| get_marks(source, values.len()));
        }

        #[test]
        fn totals_return(values in any::<[u64; 9]>()) {
            let [ops, cupti_ops, hooked_ops, converted, unconverted, a, b, c, d] = values;
            let totals = Totals {
                ops,
                cupti_ops,
                hooked_ops,
                converted_peak_bytes: converted,
                unconverted_peak_bytes: unconverted,
                unasked_ops: d % 3,
                drops: Drops { ops: a, cupti: b, unplaced: c, bad_times: d },
                check: (a % 2 == 0).then(|| Check {
                    memsets: Counted { hooked: b, confirmed: c, unseen: d },
                    unseen_kernels: vec![("_Z1k".to_owned(), d)],
                    ..Check::default()
                }),
            };
            exercise(&totals, |sink| put_totals(sink, &totals), |source| {
                get_totals(source, true, totals.unasked_ops > 0)
            });
        }

        #[test]
        fn noise_does_no_harm(bytes in noise(), count in 0_usize..300) {
            let _ = read_all(&bytes, |source| get_marks(source, count));
            let _ = read_all(&bytes, |source| get_totals(source, true, true));
        }
    }
}

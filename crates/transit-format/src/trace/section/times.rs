//! Device times of ops, in the order CUPTI delivered them: they come after the op, often in a
//! later block, and are joined to it when the trace is read.
//!
//! ```text
//! op        signed column   difference from the op before
//! gap       signed column   start less the end of the op before (first: the start)
//! duration  signed column   end less start
//! ```

use super::super::block::Flaw;
use super::super::coding::{Sink, Source};
use super::super::column::{get_delta, get_signed, put_delta, put_signed};

/// Device times of one op, whatever block it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct OpTime {
    pub(in super::super) op: u64,
    pub(in super::super) start_ns: u64,
    pub(in super::super) end_ns: u64,
}

/// Appends the section.
pub(super) fn put(sink: &mut Sink, times: &[OpTime]) {
    put_delta(sink, times.iter().map(|time| time.op));
    put_spans(sink, times.iter().map(|time| (time.start_ns, time.end_ns)));
}

/// Reads the section.
pub(super) fn get(source: &mut Source<'_>, count: usize) -> Result<Vec<OpTime>, Flaw> {
    source.enter("op times");
    let ops = get_delta(source, count)?;
    let spans = get_spans(source, count)?;
    let join = |(op, (start_ns, end_ns))| OpTime {
        op,
        start_ns,
        end_ns,
    };
    Ok(ops.into_iter().zip(spans).map(join).collect())
}

/// Appends the columns `gap` and `duration`.
pub(super) fn put_spans(sink: &mut Sink, spans: impl Iterator<Item = (u64, u64)>) {
    let mut before = 0_u64;
    let (gaps, durations): (Vec<i64>, Vec<i64>) = spans
        .map(|(start, end)| {
            let gap = start.wrapping_sub(before).cast_signed();
            before = end;
            (gap, end.wrapping_sub(start).cast_signed())
        })
        .unzip();
    put_signed(sink, &gaps);
    put_signed(sink, &durations);
}

/// Reads the columns `gap` and `duration` back as (start, end).
pub(super) fn get_spans(
    source: &mut Source<'_>,
    count: usize,
) -> Result<impl Iterator<Item = (u64, u64)> + use<>, Flaw> {
    let gaps = get_signed(source, count)?;
    let durations = get_signed(source, count)?;
    let mut before = 0_u64;
    Ok(gaps.into_iter().zip(durations).map(move |(gap, duration)| {
        let start = before.wrapping_add_signed(gap);
        before = start.wrapping_add_signed(duration);
        (start, before)
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{exercise, noise, read_all};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn op_times_return(values in prop::collection::vec(any::<(u64, u64, u64)>(), 1..20)) {
            let join = |(op, start_ns, end_ns)| OpTime { op, start_ns, end_ns };
            let times: Vec<OpTime> = values.into_iter().map(join).collect();
            exercise(&times, |sink| put(sink, &times), |source| get(source, times.len()));
        }

        #[test]
        fn noise_does_no_harm(bytes in noise(), count in 0_usize..300) {
            let _ = read_all(&bytes, |source| get(source, count));
        }
    }
}

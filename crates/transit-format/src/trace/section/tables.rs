//! Tables that ids count up in (functions, streams, allocations), and the frees.
//!
//! ```text
//! functions   per function: name text, params varint
//! streams     per stream: kind varint (0 legacy, 1 per-thread, 2 created), device, turn varints
//! allocs      callers varint, then each distinct caller as text; columns address (signed,
//!             difference), bytes (unsigned), device (unsigned), flags (unsigned: 1 converted,
//!             2 managed, 4 of a pool), caller (unsigned), at_op (signed, difference), at_ns (same)
//! frees       columns alloc, at_op, at_ns (all signed, difference)
//! ```
//!
//! The allocation table holds nothing at all for 0 allocations.

use super::super::block::Flaw;
use super::super::coding::{Sink, Source};
use super::super::column::{get_delta, get_unsigned, put_delta, put_unsigned};
use super::super::model::{Alloc, Free, Function, Stream, StreamKind};
use super::super::writer::MAX_CALLER_BYTES;
use super::narrow;
use crate::ids::{AllocId, Nanos, OpSeq};

/// Appends functions.
pub(super) fn put_functions(sink: &mut Sink, functions: &[Function]) {
    for Function { name, params } in functions {
        sink.put((name.as_str(), *params));
    }
}

/// Reads functions.
pub(super) fn get_functions(source: &mut Source<'_>, count: usize) -> Result<Vec<Function>, Flaw> {
    source.enter("functions");
    (0..count)
        .map(|_| {
            let (name, params): (&str, u32) = source.get()?;
            Ok(Function {
                name: name.to_owned(),
                params,
            })
        })
        .collect()
}

/// Appends streams.
pub(super) fn put_streams(sink: &mut Sink, streams: &[Stream]) {
    for Stream { kind, device, turn } in streams {
        let kind: u8 = match kind {
            StreamKind::Legacy => 0,
            StreamKind::PerThread => 1,
            StreamKind::Created => 2,
        };
        sink.put((kind, *device, *turn));
    }
}

/// Reads streams.
pub(super) fn get_streams(source: &mut Source<'_>, count: usize) -> Result<Vec<Stream>, Flaw> {
    source.enter("streams");
    (0..count)
        .map(|_| {
            let (kind, device, turn): (u8, u32, u32) = source.get()?;
            let kind = match kind {
                0 => StreamKind::Legacy,
                1 => StreamKind::PerThread,
                2 => StreamKind::Created,
                other => return Err(source.flaw(format!("unknown stream kind {other}"))),
            };
            Ok(Stream { kind, device, turn })
        })
        .collect()
}

/// Appends allocations.
pub(super) fn put_allocs(sink: &mut Sink, allocs: &[Alloc]) {
    if allocs.is_empty() {
        return;
    }
    let mut callers: Vec<&str> = allocs.iter().map(|alloc| alloc.caller.as_str()).collect();
    callers.sort_unstable();
    callers.dedup();
    sink.put(callers.len() as u64);
    callers.iter().for_each(|caller| sink.put(*caller));
    let caller_of = |alloc: &Alloc| match callers.binary_search(&alloc.caller.as_str()) {
        Ok(number) | Err(number) => number as u64,
    };
    let column = |value: &dyn Fn(&Alloc) -> u64| allocs.iter().map(value).collect::<Vec<_>>();
    put_delta(sink, allocs.iter().map(|alloc| alloc.address));
    put_unsigned(sink, &column(&|alloc| alloc.bytes));
    put_unsigned(sink, &column(&|alloc| u64::from(alloc.device)));
    put_unsigned(
        sink,
        &column(&|alloc| {
            let (managed, pooled) = (u64::from(alloc.managed), u64::from(alloc.pooled));
            u64::from(alloc.converted) | managed << 1 | pooled << 2
        }),
    );
    put_unsigned(sink, &column(&caller_of));
    put_delta(sink, allocs.iter().map(|alloc| alloc.at_op.0));
    put_delta(sink, allocs.iter().map(|alloc| alloc.at_ns.0));
}

/// Reads allocations.
pub(super) fn get_allocs(source: &mut Source<'_>, count: usize) -> Result<Vec<Alloc>, Flaw> {
    source.enter("allocations");
    if count == 0 {
        return Ok(Vec::new());
    }
    let caller_count = source.get_below(count as u64 + 1, "number of callers")?;
    let callers: Vec<&str> = (0..caller_count)
        .map(|_| source.get())
        .collect::<Result<_, _>>()?;
    if let Some(caller) = callers
        .iter()
        .find(|caller| caller.len() > MAX_CALLER_BYTES)
    {
        return Err(source.flaw(format!("a caller of {} bytes", caller.len())));
    }
    let addresses = get_delta(source, count)?;
    let sizes = get_unsigned(source, count)?;
    let devices = get_unsigned(source, count)?;
    let flags = get_unsigned(source, count)?;
    let caller_numbers = get_unsigned(source, count)?;
    let at_ops = get_delta(source, count)?;
    let at_times = get_delta(source, count)?;
    let mut allocs = Vec::with_capacity(count);
    let places = addresses
        .into_iter()
        .zip(sizes)
        .zip(devices.into_iter().zip(flags));
    let times = caller_numbers
        .into_iter()
        .zip(at_ops.into_iter().zip(at_times));
    for (((address, bytes), (device, flags)), (caller, (at_op, at_ns))) in places.zip(times) {
        let named = usize::try_from(caller)
            .ok()
            .and_then(|number| callers.get(number));
        let Some(caller) = named else {
            return Err(source.flaw(format!("caller {caller} of {caller_count}")));
        };
        if flags > 7 {
            return Err(source.flaw(format!("unknown allocation flags {flags:#x}")));
        }
        allocs.push(Alloc {
            address,
            bytes,
            device: narrow(source, device, "device")?,
            converted: flags & 1 != 0,
            managed: flags & 2 != 0,
            pooled: flags & 4 != 0,
            caller: (*caller).to_owned(),
            at_op: OpSeq(at_op),
            at_ns: Nanos(at_ns),
        });
    }
    Ok(allocs)
}

/// Appends frees.
pub(super) fn put_frees(sink: &mut Sink, frees: &[Free]) {
    put_delta(sink, frees.iter().map(|free| u64::from(free.alloc.0)));
    put_delta(sink, frees.iter().map(|free| free.at_op.0));
    put_delta(sink, frees.iter().map(|free| free.at_ns.0));
}

/// Reads frees.
pub(super) fn get_frees(source: &mut Source<'_>, count: usize) -> Result<Vec<Free>, Flaw> {
    source.enter("frees");
    let allocs = get_delta(source, count)?;
    let at_ops = get_delta(source, count)?;
    let at_times = get_delta(source, count)?;
    allocs
        .into_iter()
        .zip(at_ops.into_iter().zip(at_times))
        .map(|(alloc, (at_op, at_ns))| {
            let alloc = AllocId(narrow(source, alloc, "allocation")?);
            Ok(Free {
                alloc,
                at_op: OpSeq(at_op),
                at_ns: Nanos(at_ns),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{exercise, noise, read_all};
    use super::*;

    fn alloc() -> impl Strategy<Value = Alloc> {
        let caller = prop_oneof![Just(""), Just("libc10_cuda.so"), Just("libcublas.so.13")];
        (any::<[u64; 4]>(), any::<u32>(), any::<[bool; 3]>(), caller).prop_map(
            |([address, bytes, at_op, at_ns], device, [converted, managed, pooled], caller)| {
                Alloc {
                    address,
                    bytes,
                    device,
                    converted,
                    managed,
                    pooled,
                    caller: caller.to_owned(),
                    at_op: OpSeq(at_op),
                    at_ns: Nanos(at_ns),
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn functions_return(values in prop::collection::vec((".{0,12}", any::<u32>()), 1..6)) {
            let function = |(name, params)| Function { name, params };
            let values: Vec<Function> = values.into_iter().map(function).collect();
            let count = values.len();
            let put = |sink: &mut Sink| put_functions(sink, &values);
            exercise(&values, put, |source| get_functions(source, count));
        }

        #[test]
        fn streams_return(values in prop::collection::vec((0_usize..3, any::<[u32; 2]>()), 1..6)) {
            let kinds = [StreamKind::Legacy, StreamKind::PerThread, StreamKind::Created];
            let stream = |(kind, [device, turn]): (usize, [u32; 2])| Stream {
                kind: kinds[kind],
                device,
                turn,
            };
            let values: Vec<Stream> = values.into_iter().map(stream).collect();
            let count = values.len();
            let put = |sink: &mut Sink| put_streams(sink, &values);
            exercise(&values, put, |source| get_streams(source, count));
        }

        #[test]
        fn allocations_return(values in prop::collection::vec(alloc(), 1..6)) {
            let put = |sink: &mut Sink| put_allocs(sink, &values);
            exercise(&values, put, |source| get_allocs(source, values.len()));
        }

        #[test]
        fn frees_return(values in prop::collection::vec(any::<(u32, u64, u64)>(), 1..6)) {
            let free = |(alloc, at_op, at_ns)| Free {
                alloc: AllocId(alloc),
                at_op: OpSeq(at_op),
                at_ns: Nanos(at_ns),
            };
            let values: Vec<Free> = values.into_iter().map(free).collect();
            let put = |sink: &mut Sink| put_frees(sink, &values);
            exercise(&values, put, |source| get_frees(source, values.len()));
        }

        #[test]
        fn noise_does_no_harm(bytes in noise(), count in 0_usize..300) {
            let _ = read_all(&bytes, |source| get_functions(source, count));
            let _ = read_all(&bytes, |source| get_streams(source, count));
            let _ = read_all(&bytes, |source| get_allocs(source, count));
            let _ = read_all(&bytes, |source| get_frees(source, count));
        }
    }
}

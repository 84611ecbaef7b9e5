//! Ops and the managed pointers in their arguments. A training job issues the same launches with
//! the same pointers over and over, so a block stores each distinct launch, pointer and pointer
//! list once.
//!
//! ```text
//! (nothing at all for 0 ops)
//! templates   varint            number of distinct (kind, stream, function, shape)
//! kind        unsigned column   0 kernel, 1 graph, 2 memset, 3 memcpy
//! stream      unsigned column
//! function    unsigned column
//! shape       unsigned column
//! distinct    varint            number of distinct pointers, in order of first use
//! alloc       signed column     difference from the pointer before
//! offset      signed column     difference from the pointer before
//! bytes       unsigned column
//! lists       varint            number of distinct pointer lists, in order of first use
//! length      unsigned column   pointers in each list
//! reference   unsigned column   per pointer of each list: see [`super::references`]
//! template    unsigned column   per op
//! list        signed column     per op, difference from the op before
//! issued      signed column     per op, nanoseconds since the op before
//! ```

use std::collections::HashMap;

use super::super::block::Flaw;
use super::super::coding::{Sink, Source};
use super::super::column::{get_delta, get_unsigned, put_delta, put_unsigned};
use super::super::model::{Op, OpKind, Pointer};
use super::narrow;
use super::references::References;
use crate::ids::{AllocId, FunctionId, Nanos, StreamId};

/// Most pointers in the lists of one block. A writer closes a block at half of it.
const MAX_REFERENCES: u64 = 1 << 21;

/// A distinct pointer list of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct List {
    /// Index of its first pointer in the block's `pointers`.
    pub(in super::super) first: usize,
    /// Number of pointers.
    pub(in super::super) count: u32,
}

/// What [`get`] returns.
pub(super) struct Decoded {
    /// Ops; `first_pointer` is a number in `lists`.
    pub(super) ops: Vec<Op>,
    /// Pointers of all lists.
    pub(super) pointers: Vec<Pointer>,
    /// Distinct lists.
    pub(super) lists: Vec<List>,
}

type Template = (OpKind, StreamId, FunctionId, u32);

/// Distinct values in order of first appearance.
struct Interned<T> {
    numbers: HashMap<T, u64>,
    values: Vec<T>,
}

impl<T: Copy + Eq + std::hash::Hash> Interned<T> {
    fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }

    fn number(&mut self, value: T) -> u64 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u64 - 1
        })
    }
}

fn pointers_of<'a>(op: &Op, pointers: &'a [Pointer]) -> &'a [Pointer] {
    let first = usize::try_from(op.first_pointer).unwrap_or(usize::MAX);
    let list = pointers
        .get(first..)
        .and_then(|rest| rest.get(..op.pointers as usize));
    list.unwrap_or_default()
}

/// Appends the section. `first_pointer` of each op counts within `pointers`.
pub(super) fn put(sink: &mut Sink, ops: &[Op], pointers: &[Pointer]) {
    if ops.is_empty() {
        return;
    }
    let mut templates = Interned::<Template>::new();
    let mut lists = Interned::<&[Pointer]>::new();
    let (template, list): (Vec<u64>, Vec<u64>) = ops
        .iter()
        .map(|op| {
            let template = templates.number((op.kind, op.stream, op.function, op.shape));
            (template, lists.number(pointers_of(op, pointers)))
        })
        .unzip();
    put_templates(sink, &templates.values);
    put_lists(sink, &lists.values);
    put_unsigned(sink, &template);
    put_delta(sink, list.into_iter());
    put_delta(sink, ops.iter().map(|op| op.issued_ns.0));
}

fn put_templates(sink: &mut Sink, templates: &[Template]) {
    sink.put(templates.len() as u64);
    let column = |value: &dyn Fn(&Template) -> u64| templates.iter().map(value).collect::<Vec<_>>();
    put_unsigned(sink, &column(&|template| kind_code(template.0)));
    put_unsigned(sink, &column(&|template| u64::from(template.1.0)));
    put_unsigned(sink, &column(&|template| u64::from(template.2.0)));
    put_unsigned(sink, &column(&|template| u64::from(template.3)));
}

fn put_lists(sink: &mut Sink, lists: &[&[Pointer]]) {
    let mut distinct = Interned::<Pointer>::new();
    let mut coder = References::default();
    let references: Vec<u64> = lists
        .iter()
        .flat_map(|list| list.iter())
        .map(|pointer| {
            let number = distinct.number(*pointer);
            coder.code(u32::try_from(number).unwrap_or(u32::MAX))
        })
        .collect();
    sink.put(distinct.values.len() as u64);
    put_delta(
        sink,
        distinct
            .values
            .iter()
            .map(|pointer| u64::from(pointer.alloc.0)),
    );
    put_delta(sink, distinct.values.iter().map(|pointer| pointer.offset));
    let bytes: Vec<u64> = distinct
        .values
        .iter()
        .map(|pointer| pointer.bytes)
        .collect();
    put_unsigned(sink, &bytes);
    sink.put(lists.len() as u64);
    let lengths: Vec<u64> = lists.iter().map(|list| list.len() as u64).collect();
    put_unsigned(sink, &lengths);
    put_unsigned(sink, &references);
}

/// Reads the section.
pub(super) fn get(
    source: &mut Source<'_>,
    count: usize,
    by_recency: bool,
) -> Result<Decoded, Flaw> {
    source.enter("ops");
    if count == 0 {
        return Ok(Decoded {
            ops: Vec::new(),
            pointers: Vec::new(),
            lists: Vec::new(),
        });
    }
    let templates = get_templates(source, count)?;
    source.enter("pointers");
    let (pointers, lists) = get_lists(source, count, by_recency)?;
    source.enter("ops");
    let template = get_unsigned(source, count)?;
    let list = get_delta(source, count)?;
    let issued = get_delta(source, count)?;
    let mut ops = Vec::with_capacity(count);
    for ((template, list), issued_ns) in template.into_iter().zip(list).zip(issued) {
        let known = usize::try_from(template)
            .ok()
            .and_then(|number| templates.get(number));
        let Some((kind, stream, function, shape)) = known.copied() else {
            return Err(source.flaw(format!("template {template} of {}", templates.len())));
        };
        let Some(known) = usize::try_from(list)
            .ok()
            .and_then(|number| lists.get(number))
        else {
            return Err(source.flaw(format!("pointer list {list} of {}", lists.len())));
        };
        ops.push(Op {
            kind,
            stream,
            function,
            shape,
            issued_ns: Nanos(issued_ns),
            start_ns: Nanos(0),
            end_ns: Nanos(0),
            first_pointer: list,
            pointers: known.count,
        });
    }
    Ok(Decoded {
        ops,
        pointers,
        lists,
    })
}

fn get_templates(source: &mut Source<'_>, ops: usize) -> Result<Vec<Template>, Flaw> {
    let count = source.get_below(ops as u64 + 1, "number of templates")?;
    let kinds = get_unsigned(source, count)?;
    let streams = get_unsigned(source, count)?;
    let functions = get_unsigned(source, count)?;
    let shapes = get_unsigned(source, count)?;
    let columns = kinds
        .into_iter()
        .zip(streams)
        .zip(functions.into_iter().zip(shapes));
    columns
        .map(|((kind, stream), (function, shape))| {
            let kind =
                kind_from(kind).ok_or_else(|| source.flaw(format!("unknown op kind {kind}")))?;
            let stream = StreamId(narrow(source, stream, "stream")?);
            let function = FunctionId(narrow(source, function, "function")?);
            Ok((kind, stream, function, narrow(source, shape, "shape")?))
        })
        .collect()
}

fn get_lists(
    source: &mut Source<'_>,
    ops: usize,
    by_recency: bool,
) -> Result<(Vec<Pointer>, Vec<List>), Flaw> {
    let distinct_count = source.get_below(MAX_REFERENCES + 1, "number of pointers")?;
    let allocs = get_delta(source, distinct_count)?;
    let offsets = get_delta(source, distinct_count)?;
    let extents = get_unsigned(source, distinct_count)?;
    let mut distinct = Vec::with_capacity(distinct_count);
    for ((alloc, offset), bytes) in allocs.into_iter().zip(offsets).zip(extents) {
        let alloc = AllocId(narrow(source, alloc, "allocation")?);
        distinct.push(Pointer {
            alloc,
            offset,
            bytes,
        });
    }
    let list_count = source.get_below(ops as u64 + 1, "number of pointer lists")?;
    let mut first = 0_u64;
    let mut lists = Vec::with_capacity(list_count);
    for length in get_unsigned(source, list_count)? {
        let count = narrow(source, length, "length of a pointer list")?;
        lists.push(List {
            first: usize::try_from(first).unwrap_or(usize::MAX),
            count,
        });
        first += length;
        if first > MAX_REFERENCES {
            return Err(source.flaw(format!("over {MAX_REFERENCES} pointers in lists")));
        }
    }
    let references = get_unsigned(source, usize::try_from(first).unwrap_or(usize::MAX))?;
    let mut coder = References::default();
    let mut seen = 0_u32;
    let mut pointers = Vec::with_capacity(references.len());
    for reference in references {
        let number = if by_recency {
            coder.number(reference)
        } else {
            let number = u64::from(seen).checked_sub(reference);
            seen += u32::from(reference == 0);
            number.and_then(|number| u32::try_from(number).ok())
        };
        let pointer = number.and_then(|number| distinct.get(number as usize));
        let Some(pointer) = pointer else {
            return Err(source.flaw(format!("reference {reference} to no pointer")));
        };
        pointers.push(*pointer);
    }
    Ok((pointers, lists))
}

fn kind_code(kind: OpKind) -> u64 {
    match kind {
        OpKind::Kernel => 0,
        OpKind::Graph => 1,
        OpKind::Memset => 2,
        OpKind::Memcpy => 3,
    }
}

fn kind_from(code: u64) -> Option<OpKind> {
    match code {
        0 => Some(OpKind::Kernel),
        1 => Some(OpKind::Graph),
        2 => Some(OpKind::Memset),
        3 => Some(OpKind::Memcpy),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{body_of, exercise, noise, read_all};
    use super::*;

    fn op() -> impl Strategy<Value = (Op, Vec<Pointer>)> {
        let pointer = (0_u32..4, 0_u64..3, 0_u64..2).prop_map(|(alloc, offset, bytes)| Pointer {
            alloc: AllocId(alloc),
            offset,
            bytes,
        });
        let op = (0_u64..4, 0_u32..3, 0_u32..3, any::<bool>(), any::<u64>());
        let op = op.prop_map(|(kind, stream, function, shaped, issued_ns)| Op {
            kind: kind_from(kind).unwrap(),
            stream: StreamId(stream),
            function: FunctionId(function),
            shape: if shaped { u32::MAX } else { 0 },
            issued_ns: Nanos(issued_ns),
            ..Op::default()
        });
        (op, prop::collection::vec(pointer, 0..4))
    }

    /// Ops with their pointers laid out as a writer does.
    fn lay_out(values: &[(Op, Vec<Pointer>)]) -> (Vec<Op>, Vec<Pointer>) {
        let mut pointers = Vec::new();
        let mut ops = Vec::new();
        for (op, list) in values {
            let count = u32::try_from(list.len()).unwrap();
            ops.push(Op {
                first_pointer: pointers.len() as u64,
                pointers: count,
                ..*op
            });
            pointers.extend_from_slice(list);
        }
        (ops, pointers)
    }

    /// Reads the section as ops with their own pointers.
    fn get_values(source: &mut Source<'_>, count: usize) -> Result<Vec<(Op, Vec<Pointer>)>, Flaw> {
        let Decoded {
            ops,
            pointers,
            lists,
        } = get(source, count, true)?;
        let own = |op: Op| {
            let list = lists[usize::try_from(op.first_pointer).unwrap()];
            let list = pointers[list.first..][..list.count as usize].to_vec();
            (
                Op {
                    first_pointer: 0,
                    pointers: 0,
                    ..op
                },
                list,
            )
        };
        Ok(ops.into_iter().map(own).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ops_return(values in prop::collection::vec(op(), 1..12)) {
            let (ops, pointers) = lay_out(&values);
            let put = |sink: &mut Sink| put(sink, &ops, &pointers);
            exercise(&values, put, |source| get_values(source, ops.len()));
        }

        #[test]
        fn noise_does_no_harm(bytes in noise(), count in 0_usize..300) {
            let _ = read_all(&bytes, |source| get_values(source, count));
        }
    }

    #[test]
    fn a_repeated_launch_is_stored_once() {
        let pointer = Pointer {
            alloc: AllocId(7),
            offset: 4096,
            bytes: 0,
        };
        let value = (Op::default(), vec![pointer; 3]);
        let (ops, pointers) = lay_out(&vec![value; 100]);
        let body = body_of(|sink| put(sink, &ops, &pointers));
        let decoded = read_all(&body, |source| get(source, 100, true)).unwrap();
        assert_eq!((decoded.lists.len(), decoded.pointers.len()), (1, 3));
    }

    #[test]
    fn numbers_past_their_table_are_refused() {
        let (ops, pointers) = lay_out(&[(Op::default(), vec![Pointer::default()])]);
        let body = body_of(|sink| put(sink, &ops, &pointers));
        // The last columns hold one number each as (base, scale, width, no planes).
        for (at, what) in [
            (body.len() - 12, "template"),
            (body.len() - 8, "pointer list"),
        ] {
            let mut bad = body.clone();
            bad[at] = 2;
            let flaw = read_all(&bad, |source| get(source, 1, true)).err().unwrap();
            assert!(flaw.what.starts_with(what), "{flaw:?}");
        }
    }
}

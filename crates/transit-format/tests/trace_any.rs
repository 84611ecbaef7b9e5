//! Any sequence of events reads back, in any division into blocks; and no bytes make a reader
//! panic or take unbounded memory.

mod common;

use std::process::Command;

use proptest::prelude::*;
use transit_format::Error;
use transit_format::ids::{AllocId, FunctionId, Nanos, OpSeq, StreamId};
use transit_format::trace::model::{
    Alloc, Event, Free, Function, Header, Migration, Op, Pointer, Stream,
};
use transit_format::trace::{Trace, Writer};

/// One event, or `None` for the end of a block. Ids are among those made beforehand.
fn event() -> impl Strategy<Value = Option<Event>> {
    let pointer = (0_u32..3, any::<u64>(), 0_u64..2).prop_map(|(alloc, offset, bytes)| Pointer {
        alloc: AllocId(alloc),
        offset,
        bytes,
    });
    let pointers = prop::collection::vec(pointer, 0..4);
    prop_oneof![
        Just(None),
        any::<u8>().prop_map(|number| {
            let name = format!("kernel{number}");
            Some(Event::Function(Function { name, params: 1 }))
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(bytes, at)| {
            let (at_op, at_ns) = (OpSeq(at), Nanos(at));
            Some(Event::Alloc(Alloc {
                bytes,
                at_op,
                at_ns,
                ..Alloc::default()
            }))
        }),
        any::<u64>().prop_map(|at| {
            Some(Event::Free(Free {
                alloc: AllocId(0),
                at_op: OpSeq(0),
                at_ns: Nanos(at),
            }))
        }),
        (pointers, any::<[u64; 3]>()).prop_map(|(pointers, [issued, start, end])| {
            let op = Op {
                stream: StreamId(0),
                function: FunctionId(0),
                issued_ns: Nanos(issued),
                start_ns: Nanos(start),
                end_ns: Nanos(end),
                ..Op::default()
            };
            Some(Event::Op(op, pointers))
        }),
        any::<[u64; 3]>().prop_map(|[offset, bytes, start]| {
            let start_ns = Nanos(start);
            Some(Event::Migration(Migration {
                offset,
                bytes,
                start_ns,
                ..Migration::default()
            }))
        }),
    ]
}

/// Events pushed after three allocations, a stream and a function.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn write(events: &[Option<Event>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    for event in begin() {
        writer.push(event).unwrap();
    }
    for event in events {
        match event {
            Some(event) => writer.push(event.clone()).unwrap(),
            None => writer.flush_block().unwrap(),
        }
    }
    writer.finish().unwrap()
}

fn begin() -> Vec<Event> {
    let mut events = vec![Event::Alloc(Alloc::default()); 3];
    events.push(Event::Stream(Stream::default()));
    events.push(Event::Function(Function::default()));
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_events_return(events in prop::collection::vec(event(), 0..60)) {
        let trace = Trace::read(&write(&events), "any").unwrap();
        let pushed = || begin().into_iter().chain(events.iter().flatten().cloned());
        let functions: Vec<Function> = pushed()
            .filter_map(|event| if let Event::Function(it) = event { Some(it) } else { None })
            .collect();
        let allocs: Vec<Alloc> = pushed()
            .filter_map(|event| if let Event::Alloc(it) = event { Some(it) } else { None })
            .collect();
        let frees: Vec<Free> = pushed()
            .filter_map(|event| if let Event::Free(it) = event { Some(it) } else { None })
            .collect();
        let migrations: Vec<Migration> = pushed()
            .filter_map(|event| if let Event::Migration(it) = event { Some(it) } else { None })
            .collect();
        let ops: Vec<(Op, Vec<Pointer>)> = pushed()
            .filter_map(|event| match event {
                Event::Op(op, list) => Some((op, list)),
                _ => None,
            })
            .collect();
        let plain = |op: &Op| Op { first_pointer: 0, pointers: 0, ..*op };
        let read: Vec<_> =
            trace.ops.iter().map(|op| (plain(op), trace.pointers_of(op).to_vec())).collect();
        prop_assert_eq!(trace.functions, functions);
        prop_assert_eq!(trace.allocs, allocs);
        prop_assert_eq!(trace.frees, frees);
        prop_assert_eq!(trace.migrations, migrations);
        prop_assert_eq!(read, ops);
    }

    #[test]
    fn no_changed_bytes_panic(
        events in prop::collection::vec(event(), 0..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = write(&events);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = Trace::read(&bytes, "changed");
        let _ = Trace::read_lenient(&bytes, "changed");
    }
}

/// A frame of ours with any content: checksums right, meaning hostile.
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper of tests"
)]
fn block(kind: u8, sequence: u32, counts: [u32; 10], first_op: u64, body: &[u8]) -> Vec<u8> {
    let mut content = b"TRTB\x01\x00".to_vec();
    content.extend([kind, 0]);
    content.extend(sequence.to_le_bytes());
    content.extend((body.len() as u32).to_le_bytes());
    content.extend([0; 4]);
    counts
        .iter()
        .for_each(|count| content.extend(count.to_le_bytes()));
    content.extend([0; 12]);
    content.extend(first_op.to_le_bytes());
    content.extend(body);
    let crc = crc32fast::hash(&content);
    content[16..20].copy_from_slice(&crc.to_le_bytes());
    zstd::bulk::compress(&content, 3).unwrap()
}

#[test]
fn counts_without_events_behind_them_are_refused() {
    let start = write(&[]);
    let first = zstd_safe::find_frame_compressed_size(&start).unwrap();
    for at in 0..9 {
        let mut counts = [0; 10];
        counts[at] = 1 << 17;
        let hostile = [&start[..first], &block(2, 1, counts, 0, &[0; 64])].concat();
        // Nothing good follows, so that it reads as a tail that is not there.
        let trace = Trace::read(&hostile, "hostile");
        assert!(trace.is_ok_and(|trace| trace.ops.is_empty()), "count {at}");
        counts[at] = u32::MAX;
        let hostile = [&start[..first], &block(2, 1, counts, 0, &[0; 64])].concat();
        assert!(matches!(
            Trace::read(&hostile, "hostile"),
            Err(Error::TooLarge { .. })
        ));
    }
}

#[test]
fn a_gap_of_many_ops_is_not_filled() {
    let start = write(&[]);
    let first = zstd_safe::find_frame_compressed_size(&start).unwrap();
    let hostile = [&start[..first], &block(2, 7, [0; 10], u64::MAX / 2, &[])].concat();
    let error = Trace::read_lenient(&hostile, "hostile").unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn the_zstd_tool_accepts_a_trace() {
    let file = tempfile::NamedTempFile::with_suffix(".trace.zst").unwrap();
    let bytes = common::training(50_000, 1).bytes;
    std::fs::write(file.path(), &bytes).unwrap();
    // The library says the same where the tool is not installed.
    assert!(zstd::decode_all(&bytes[..]).is_ok());
    if let Ok(output) = Command::new("zstd").arg("-t").arg(file.path()).output() {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

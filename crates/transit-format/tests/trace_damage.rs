//! What happens to traces that were cut, damaged or never traces: every good block is kept, and
//! each error says what, where.

mod common;

use std::io::Write as _;

use transit_format::Error;
use transit_format::ids::{FunctionId, Nanos, OpSeq};
use transit_format::trace::model::{Event, Function, Op, Pointer, Stream};
use transit_format::trace::{End, Trace, Writer};

/// Offsets of the frames of a trace.
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper of tests"
)]
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut offsets = Vec::new();
    while at < bytes.len() {
        offsets.push(at);
        at += zstd_safe::find_frame_compressed_size(&bytes[at..]).unwrap();
    }
    offsets
}

/// Six blocks: header, four of 100 ops each, end.
#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn small() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &common::header()).unwrap();
    writer.push(Event::Stream(Stream::default())).unwrap();
    for block in 0..4_u32 {
        let function = Function {
            name: format!("kernel{block}"),
            params: 2,
        };
        writer.push(Event::Function(function)).unwrap();
        for number in 0..100 {
            let issued_ns = Nanos(u64::from(block * 100 + number) * 1_000);
            let op = Op {
                function: FunctionId(block),
                issued_ns,
                ..Op::default()
            };
            writer.push(Event::Op(op, Vec::new())).unwrap();
        }
        writer.flush_block().unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_trace_cut_anywhere_keeps_its_whole_blocks() {
    let bytes = small();
    let frames = frames(&bytes);
    for length in 0..bytes.len() {
        let whole = frames.iter().filter(|at| **at <= length).count() - 1;
        match Trace::read(&bytes[..length], "cut.trace.zst") {
            Ok(trace) => {
                assert_eq!(trace.ops.len(), 100 * (whole - 1));
                assert_eq!(trace.header, common::header());
                let End::Cut { offset, reason } = trace.end else {
                    panic!("not cut at {length}")
                };
                assert_eq!(offset, frames[whole] as u64, "{reason}");
            }
            Err(Error::Truncated { file, .. }) => {
                assert!(whole == 0, "lost {whole} blocks at {length}");
                assert_eq!(file, "cut.trace.zst");
            }
            Err(error) => panic!("at {length}: {error}"),
        }
    }
}

#[test]
fn a_bit_flip_never_goes_unseen_and_costs_one_block() {
    let bytes = small();
    let good = Trace::read(&bytes, "good").unwrap();
    let frames = frames(&bytes);
    let last = *frames.last().unwrap();
    for (at, bit) in (0..bytes.len()).map(|at| (at, 1_u8 << (at % 8))) {
        let mut bad = bytes.clone();
        bad[at] ^= bit;
        let block = frames.iter().filter(|offset| **offset <= at).count() - 1;
        let span = frames[block] as u64..frames.get(block + 1).map_or(u64::MAX, |at| *at as u64);
        match Trace::read(&bad, "bad.trace.zst") {
            // zstd gives a few bits no meaning; the content is intact then.
            Ok(trace) if trace == good => continue,
            // The end block holds no events: without it the file is merely not closed.
            Ok(trace) if at >= last => {
                assert!(matches!(trace.end, End::Cut { offset, .. } if offset == last as u64));
                assert_eq!(trace.ops, good.ops);
            }
            Ok(_) => panic!("bit {bit:#x} of byte {at} went unseen"),
            Err(Error::Damaged { file, offset, .. }) => {
                // Mostly the block's beginning; its last bytes if its checksum flag was lost.
                assert_eq!(file, "bad.trace.zst");
                assert!(span.contains(&offset), "byte {at}: damage at {offset}");
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
        let salvage = Trace::read_lenient(&bad, "bad.trace.zst").unwrap();
        assert_eq!(salvage.trace.ops.len(), 400, "byte {at}");
        let lost = salvage
            .trace
            .ops
            .iter()
            .zip(&good.ops)
            .filter(|(a, b)| a != b)
            .count();
        assert!(lost <= 100, "{lost} ops lost at byte {at}");
        if at < last {
            assert_eq!(salvage.damage.len(), 1, "byte {at}: {:?}", salvage.damage);
            assert!(span.contains(&salvage.damage[0].offset));
        }
    }
}

#[test]
fn salvage_says_which_ops_are_lost() {
    let mut bytes = small();
    let frames = frames(&bytes);
    bytes[frames[2] + 30] ^= 0x10;
    let salvage = Trace::read_lenient(&bytes, "bad").unwrap();
    assert_eq!(salvage.damage[0].lost_ops, Some((100, 100)));
    let name_of = |seq: usize| {
        salvage.trace.functions[salvage.trace.ops[seq].function.index()]
            .name
            .as_str()
    };
    let names = [0, 99, 100, 199, 200, 399].map(name_of);
    assert_eq!(
        names,
        [
            "kernel0", "kernel0", "(lost)", "(lost)", "kernel2", "kernel3"
        ]
    );
}

#[test]
fn a_missing_block_is_damage() {
    let bytes = small();
    let frames = frames(&bytes);
    let holed = [&bytes[..frames[2]], &bytes[frames[3]..]].concat();
    let error = Trace::read(&holed, "holed").unwrap_err();
    assert!(
        error.is_damage() && error.to_string().contains("block 3 where 2 is due"),
        "{error}"
    );
    let salvage = Trace::read_lenient(&holed, "holed").unwrap();
    assert_eq!(salvage.trace.ops.len(), 400);
    assert_eq!(salvage.damage[0].lost_ops, Some((100, 100)));
}

#[test]
fn bytes_after_the_end_are_damage_and_cost_nothing() {
    let bytes = small();
    for extra in [&b"more"[..], &bytes] {
        let longer = [&bytes[..], extra].concat();
        assert!(Trace::read(&longer, "longer").unwrap_err().is_damage());
        let salvage = Trace::read_lenient(&longer, "longer").unwrap();
        assert_eq!(
            (salvage.trace.ops.len(), &salvage.trace.end),
            (400, &End::Clean)
        );
        assert_eq!(salvage.damage[0].offset, bytes.len() as u64);
    }
}

#[test]
fn foreign_newer_and_empty_files_are_told_apart() {
    let text = Trace::read(b"#!/bin/sh\necho hello\n", "run.sh")
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "run.sh: not a TRANSIT trace: it does not begin as a zstd file"
    );

    let foreign = zstd::encode_all(&b"some other data, longer than a magic"[..], 3).unwrap();
    let text = Trace::read(&foreign, "logs.zst").unwrap_err().to_string();
    assert_eq!(
        text,
        "logs.zst: not a TRANSIT trace: a zstd file, but not one of TRANSIT's"
    );

    let newer = zstd::encode_all(&b"TRTB\x02\x00 a layout we cannot know"[..], 3).unwrap();
    let error = Trace::read(&newer, "new.trace.zst").unwrap_err();
    assert!(matches!(error, Error::Newer { .. }), "{error}");
    assert!(error.to_string().contains("trace format 2"), "{error}");

    assert!(matches!(
        Trace::read(b"", "none"),
        Err(Error::Truncated { .. })
    ));
    for lenient in [&foreign[..], &newer, b"text", b""] {
        assert!(Trace::read_lenient(lenient, "x").is_err());
    }
}

#[test]
fn foreign_files_are_told_from_disk_too() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&zstd::encode_all(&vec![7_u8; 1 << 20][..], 1).unwrap())
        .unwrap();
    let error = Trace::open(file.path()).unwrap_err();
    assert!(matches!(error, Error::NotOurs { .. }), "{error}");
    let error = Trace::open(std::path::Path::new("no/such.trace.zst")).unwrap_err();
    assert!(
        error.to_string().starts_with("no/such.trace.zst: "),
        "{error}"
    );
}

#[test]
fn a_frame_that_lies_about_its_size_is_refused() {
    let bytes = small();
    // Frame header: magic, descriptor, then the content size (1 byte, or 2 less 256).
    let second = frames(&bytes)[1];
    for size in [0_u8, 1, 0x7f, 0xff] {
        let mut bad = bytes.clone();
        bad[second + 5] = size;
        if bad != bytes {
            assert!(Trace::read(&bad, "bad").is_err(), "{size}");
        }
    }
    let huge = [
        0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0,
    ];
    let error = Trace::read(&[&bytes[..second], &huge].concat(), "huge").unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn a_flip_in_a_large_frames_header_costs_one_block() {
    let made = common::training(100_000, 9);
    let frames = frames(&made.bytes);
    for bit in 4 * 8..10 * 8 {
        let mut bad = made.bytes.clone();
        bad[frames[2] + bit / 8] ^= 1 << (bit % 8);
        let salvage = Trace::read_lenient(&bad, "bad").unwrap();
        assert_eq!(salvage.trace.ops.len(), made.ops.len(), "bit {bit}");
        assert!(salvage.damage.len() <= 1, "bit {bit}: {:?}", salvage.damage);
        let whole = salvage.trace.ops.iter().filter(|op| op.shape != 0).count();
        assert!(
            made.ops.len() - whole < 30_000,
            "bit {bit} costs {} ops",
            made.ops.len() - whole
        );
    }
}

#[test]
fn ids_that_point_nowhere_are_damage() {
    let dangling = |event: Event| {
        let mut writer = Writer::new(Vec::new(), &common::header()).unwrap();
        writer.push(Event::Stream(Stream::default())).unwrap();
        writer.push(Event::Function(Function::default())).unwrap();
        writer.push(event).unwrap();
        writer.finish().unwrap()
    };
    let op = Op {
        function: FunctionId(3),
        ..Op::default()
    };
    let pointer = Pointer::default();
    let late = Event::OpTime {
        op: OpSeq(9),
        start_ns: Nanos(1),
        end_ns: Nanos(2),
    };
    for event in [
        Event::Op(op, Vec::new()),
        Event::Op(Op::default(), vec![pointer]),
        late,
    ] {
        let bytes = dangling(event);
        let error = Trace::read(&bytes, "dangling").unwrap_err();
        assert!(
            matches!(error, Error::Damaged { section: "ids", .. }),
            "{error}"
        );
        let trace = Trace::read_lenient(&bytes, "dangling").unwrap().trace;
        assert!(
            trace
                .ops
                .iter()
                .all(|op| op.function.index() < trace.functions.len())
        );
        assert!(
            trace
                .pointers
                .iter()
                .all(|pointer| pointer.alloc.index() < trace.allocs.len())
        );
    }
}

#[test]
fn each_block_reaches_the_sink_as_one_whole_frame() {
    #[derive(Default)]
    struct Calls(Vec<Vec<u8>>);
    impl std::io::Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Calls::default(), &common::header()).unwrap();
    writer.push(Event::Stream(Stream::default())).unwrap();
    writer.flush_block().unwrap();
    writer.flush_block().unwrap();
    let calls = writer.finish().unwrap().0;
    assert_eq!(calls.len(), 3);
    for call in calls {
        assert_eq!(zstd_safe::find_frame_compressed_size(&call), Ok(call.len()));
        assert!(zstd::decode_all(&call[..]).is_ok());
    }
}

//! What a planner writes is what a replayer and the tools read, and a planner's mistake is told
//! when writing.

mod common;

use transit_format::Error;
use transit_format::ids::{Ordinal, StreamId};
use transit_format::plan::model::{Plan, Range, Step};
use transit_format::plan::{View, read, write};

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn bytes_of(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(plan, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_plan_reads_back() {
    let plan = common::plans::plan(100, 11);
    let path = tempfile::NamedTempFile::new().unwrap();
    write(&plan, path.as_file()).unwrap();
    assert_eq!(read(path.path()).unwrap(), plan);
}

#[test]
fn an_empty_plan_reads_back() {
    let plan = Plan::default();
    let view = View::from_bytes(bytes_of(&plan), "made").unwrap();
    assert_eq!(view.to_plan("made").unwrap(), plan);
    assert!(view.steps_of(StreamId(3), Ordinal(7)).is_empty());
}

#[test]
fn steps_are_found_by_stream_and_ordinal() {
    let plan = common::plans::plan(100, 5);
    let view = View::from_bytes(bytes_of(&plan), "made").unwrap();
    for stream in (0..2).map(StreamId) {
        for ordinal in (0..100).map(Ordinal) {
            let of_op = |step: &&Step| (step.stream, step.ordinal) == (stream, ordinal);
            let wanted: Vec<&Step> = plan.steps.iter().filter(of_op).collect();
            let found = view.steps_of(stream, ordinal);
            assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(wanted) {
                assert_eq!(found.action(), wanted.action);
                let ranges: Vec<Range> =
                    view.ranges(found).iter().map(|range| range.get()).collect();
                assert_eq!(ranges, wanted.ranges);
            }
            assert_eq!(
                view.ops(stream)[ordinal.index()].has_steps(),
                ordinal.0 % 3 == 0
            );
        }
    }
}

#[test]
fn mistakes_of_a_planner_are_not_written() {
    let good = common::plans::plan(10, 5);
    type Mistake = (&'static str, fn(&mut Plan));
    let mistakes: [Mistake; 8] = [
        ("steps out of order", |plan| plan.steps.reverse()),
        ("step of no op", |plan| {
            plan.steps[0].ordinal = Ordinal(4_000)
        }),
        ("range too long", |plan| {
            plan.placements[0].range.bytes = 1 << 40
        }),
        ("range overflows", |plan| {
            plan.placements[0].range.offset = u64::MAX
        }),
        ("range of no allocation", |plan| {
            plan.start_resident[0].alloc = 50
        }),
        ("wrong hash", |plan| plan.streams[0].ops[0].name_hash += 1),
        ("no such name", |plan| plan.streams[0].ops[0].name = 40),
        ("no such main stream", |plan| {
            plan.shape.main_stream = StreamId(2)
        }),
    ];
    for (what, mistake) in mistakes {
        let mut plan = good.clone();
        mistake(&mut plan);
        let error = write(&plan, Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{what}: {error}");
    }
}

#[test]
fn a_plan_too_large_to_copy_is_mapped() {
    let mut plan = common::plans::plan(10, 5);
    plan.meta
        .choices
        .push(("padding".into(), "x".repeat(65 << 20)));
    let file = tempfile::NamedTempFile::new().unwrap();
    write(&plan, file.as_file()).unwrap();
    let view = View::open(file.path()).unwrap();
    assert!(view.meta_json().len() > 65 << 20);
    assert_eq!(view.ops(StreamId(1)).len(), 10);
}

//! What a recorder pushes is what a planner reads, over many blocks and through a re-encoding.

mod common;

use transit_format::trace::{End, Trace};

#[test]
fn a_training_trace_reads_back() {
    let made = common::training(80_000, 3);
    let trace = Trace::read(&made.bytes, "made").unwrap();
    assert_eq!(trace.end, End::Clean);
    assert_eq!(trace.header, made.header);
    assert_eq!(trace.functions, made.functions);
    assert_eq!(trace.allocs, made.allocs);
    assert_eq!(trace.migrations, made.migrations);
    assert_eq!(trace.ops.len(), made.ops.len());
    for (op, (wanted, pointers)) in trace.ops.iter().zip(&made.ops) {
        assert_eq!(trace.pointers_of(op), pointers);
        let shape = |op: &transit_format::trace::model::Op| {
            (
                op.kind,
                op.stream,
                op.function,
                op.shape,
                op.issued_ns,
                op.start_ns,
                op.end_ns,
            )
        };
        assert_eq!(shape(op), shape(wanted));
    }
    // Equal lists are held once: what keeps 10 M events under 1 GiB.
    assert!(
        trace.pointers.len() < 20_000,
        "{} pointers held",
        trace.pointers.len()
    );
    let again = Trace::read(&trace.write_to(Vec::new()).unwrap(), "again").unwrap();
    assert_eq!(again.ops, trace.ops);
    assert_eq!(again.pointers, trace.pointers);
    assert_eq!(again, trace);
}

#[test]
fn eight_bytes_are_enough_for_an_event() {
    let made = common::training(200_000, 7);
    let per_event = made.bytes.len() as f64 / made.events as f64;
    println!("{per_event:.2} bytes per event ({} events)", made.events);
    assert!(per_event <= 8.0, "{per_event:.2} bytes per event");
}

//! The iteration is found exactly, whatever else the job does between.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod support;

use regex::Regex;
use support::{Job, Made};
use transit_plan::iterations::{self, Boundary, Evidence, Phase};
use transit_plan::timeline::Timeline;

fn find(made: &Made, boundary: &Boundary) -> Option<Phase> {
    iterations::find(&Timeline::new(&made.trace), boundary)
}

/// Every complete iteration found is one of the job's steps, and most steps are found.
#[track_caller]
fn assert_steps(made: &Made, phase: &Phase, missing: usize) {
    let steps: Vec<(u64, u64)> = made
        .step_starts
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .collect();
    let found: Vec<(u64, u64)> = phase
        .matched()
        .map(|i| (i.first_seq.into(), i.end_seq.into()))
        .collect();
    for iteration in &found {
        assert!(
            steps.contains(iteration),
            "{iteration:?} is no step: {steps:?} {phase:?}"
        );
    }
    let least = steps.len() - 1 - missing;
    assert!(
        found.len() >= least,
        "{} of {} found: {phase:?}",
        found.len(),
        steps.len()
    );
    assert!(
        phase.is_confident(),
        "confidence {}: {phase:?}",
        phase.confidence
    );
}

#[test]
fn a_plain_job() {
    let made = Job::default().make();
    let phase = find(&made, &Boundary::Auto).unwrap();
    assert_steps(&made, &phase, 0);
    assert_eq!(phase.evidence, Evidence::OptimizerName);
    let last = made.step_starts.len() - 2;
    assert_eq!(
        u64::from(phase.steady().unwrap().first_seq),
        made.step_starts[last]
    );
}

#[test]
fn accumulation_is_one_iteration_for_all_its_micro_batches() {
    let made = Job {
        micro_batches: 4,
        ..Job::default()
    }
    .make();
    assert_steps(&made, &find(&made, &Boundary::Auto).unwrap(), 0);
}

#[test]
fn accumulation_without_optimizer_names() {
    let job = Job {
        micro_batches: 4,
        optimizer_named: false,
        steps: 8,
        ..Job::default()
    };
    let made = job.make();
    let phase = find(&made, &Boundary::Auto).unwrap();
    let length = made.step_starts[2] - made.step_starts[1];
    let lengths: Vec<u64> = phase
        .matched()
        .map(|i| u64::from(i.end_seq - i.first_seq))
        .collect();
    assert!(lengths.len() >= 6, "{phase:?}");
    assert!(
        lengths.iter().all(|found| *found == length),
        "{length}: {lengths:?}"
    );
    assert!(phase.is_confident());
}

#[test]
fn logging_steps_do_not_shift_it() {
    let made = Job {
        log_every: 3,
        steps: 12,
        ..Job::default()
    }
    .make();
    let phase = find(&made, &Boundary::Auto).unwrap();
    assert_steps(&made, &phase, 0);
    let steady = phase.steady().unwrap();
    let usual = made.step_starts[2] - made.step_starts[1];
    assert_eq!(
        u64::from(steady.end_seq - steady.first_seq),
        usual,
        "a logging step was taken"
    );
}

#[test]
fn evaluation_is_no_iteration() {
    let made = Job {
        eval_every: 4,
        steps: 12,
        ..Job::default()
    }
    .make();
    let phase = find(&made, &Boundary::Auto).unwrap();
    let matched: Vec<_> = phase.matched().collect();
    assert!(matched.len() >= 8, "{phase:?}");
    assert!(phase.is_confident());
    let usual = made.step_starts[2] - made.step_starts[1];
    let steady = phase.steady().unwrap();
    assert_eq!(u64::from(steady.end_seq - steady.first_seq), usual);
}

#[test]
fn five_percent_of_kernels_renamed() {
    for micro_batches in [1, 4] {
        let job = Job {
            renamed_percent: 5,
            micro_batches,
            steps: 10,
            ..Job::default()
        };
        let made = job.make();
        assert_steps(&made, &find(&made, &Boundary::Auto).unwrap(), 0);
    }
}

#[test]
fn everything_at_once() {
    let job = Job {
        renamed_percent: 5,
        micro_batches: 4,
        log_every: 5,
        second_stream: true,
        steps: 15,
        ..Job::default()
    };
    let made = job.make();
    assert_steps(&made, &find(&made, &Boundary::Auto).unwrap(), 0);
}

#[test]
fn without_names_the_host_gap_says_where_it_starts() {
    let made = Job {
        optimizer_named: false,
        host_gap: true,
        steps: 8,
        ..Job::default()
    }
    .make();
    let phase = find(&made, &Boundary::Auto).unwrap();
    assert_eq!(phase.evidence, Evidence::HostGap);
    assert_steps(&made, &phase, 1);
}

#[test]
fn two_recorded_steps_are_enough() {
    let made = Job {
        steps: 3,
        ..Job::default()
    }
    .make();
    assert_steps(&made, &find(&made, &Boundary::Auto).unwrap(), 0);
}

#[test]
fn the_boundary_can_be_given() {
    let made = Job {
        optimizer_named: false,
        ..Job::default()
    }
    .make();
    let pattern = Boundary::Pattern(Regex::new("update_kernel").unwrap());
    let phase = find(&made, &pattern).unwrap();
    assert_eq!(phase.evidence, Evidence::Given);
    assert_steps(&made, &phase, 0);
    let seq = u32::try_from(made.step_starts[2]).unwrap();
    assert_steps(&made, &find(&made, &Boundary::Op(seq)).unwrap(), 1);
}

#[test]
fn a_job_that_does_not_repeat_gives_no_confident_phase() {
    let made = Job {
        steps: 1,
        ..Job::default()
    }
    .make();
    let phase = find(&made, &Boundary::Auto);
    assert!(
        phase.as_ref().is_none_or(|phase| !phase.is_confident()),
        "{phase:?}"
    );
}

#[test]
fn other_streams_are_cut_where_the_main_one_is() {
    let job = Job {
        second_stream: true,
        ..Job::default()
    };
    let made = job.make();
    let timeline = Timeline::new(&made.trace);
    let phase = iterations::find(&timeline, &Boundary::Auto).unwrap();
    let streams = iterations::ops_by_stream(&timeline, &phase, phase.steady().unwrap());
    assert_eq!(streams.len(), 2);
    assert_eq!(streams[1].1.len(), job.layers as usize);
}

/// A trace cut out of a longer one begins with the op before its first iteration and ends with the
/// last op of an iteration. Two optimizer kernels in a row are one boundary there too.
#[test]
fn a_cut_trace_has_the_iterations_of_the_whole() {
    use transit_format::ids::{FunctionId, Nanos, StreamId};
    use transit_format::trace::Trace;
    use transit_format::trace::model::{Function, Op, OpKind, Stream};
    let names = (0..30).map(|kernel| format!("kernel_{kernel}"));
    let functions: Vec<Function> = names
        .chain(["multi_tensor_adam".to_owned()])
        .map(|name| Function { name, params: 1 })
        .collect();
    let step: Vec<u32> = (0..60)
        .map(|place| place * 7 % 30)
        .chain([30, 30])
        .collect();
    let kernels = std::iter::once(30).chain(step.iter().copied().cycle().take(62 * 4));
    let ops = kernels.enumerate().map(|(place, function)| Op {
        kind: OpKind::Kernel,
        stream: StreamId(0),
        function: FunctionId(function),
        issued_ns: Nanos(place as u64 * 1_000),
        ..Op::default()
    });
    let trace = Trace {
        functions,
        streams: vec![Stream::default()],
        ops: ops.collect(),
        ..Trace::default()
    };
    let timeline = transit_plan::timeline::Timeline::new(&trace);
    let phase = transit_plan::iterations::find(&timeline, &Boundary::Auto).unwrap();
    let lengths: Vec<u32> = phase
        .iterations
        .iter()
        .map(|one| one.end - one.start)
        .collect();
    assert!(lengths.iter().all(|length| *length == 62), "{lengths:?}");
    assert!(lengths.len() >= 3, "{lengths:?}");
}

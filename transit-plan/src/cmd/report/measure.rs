//! Measures one run: per steady iteration, then medians.

use serde::Serialize;
use transit_format::trace::Trace;
use transit_format::trace::model::{Direction, FaultKind};

use super::residency;
use crate::assign;
use crate::cmd::files;
use crate::cmd::windows::{self, Window};
use crate::touch;

/// One iteration, or the medians over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Duration.
    pub step_ns: f64,
    /// Time during which at least one op ran on the device.
    pub busy_ns: f64,
    /// Ops.
    pub launches: f64,
    /// GPU fault groups (0 unless recorded).
    pub fault_groups: f64,
    /// HtoD migrations that an access caused.
    pub demand_migrations: f64,
    /// Bytes host to device.
    pub htod_bytes: f64,
    /// Migrations host to device.
    pub htod: f64,
    /// Sum of their durations.
    pub htod_ns: f64,
    /// Bytes device to host.
    pub dtoh_bytes: f64,
    /// Migrations device to host.
    pub dtoh: f64,
    /// Sum of their durations.
    pub dtoh_ns: f64,
    /// Time during which at least one transfer to the host ran.
    pub evicting_ns: f64,
    /// Bytes touched in host memory in place, estimated.
    pub zero_copy_bytes: f64,
}

/// One run: a trace, or the traces of all ranks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// What its column is called.
    pub label: String,
    /// Its files.
    pub files: Vec<String>,
    /// The job, as its command.
    pub job: String,
    /// What directed it.
    pub policy: String,
    /// Iterations found.
    pub iterations: usize,
    /// Iterations that the medians are over.
    pub steady: usize,
    /// Lowest confidence in the iterations.
    pub confidence: f64,
    /// Medians.
    pub median: Sample,
    /// Whether faults were recorded.
    pub faults_recorded: bool,
    /// Whether the run could have zero-copy bytes.
    pub zero_copy: bool,
    /// Whether the card was emulated.
    pub emulated: bool,
    /// Whether it was the recorder that emulated it, which settles after every op.
    pub by_recorder: bool,
    /// The card: emulated, else the device.
    pub capacity_bytes: u64,
    /// Highest sum of chunks on the device and unconverted bytes.
    pub peak_resident_bytes: u64,
    /// Whether that peak was replayed from migrations, rather than taken from allocations.
    pub peak_is_exact: bool,
    /// Highest sum of converted and unconverted bytes alive.
    pub peak_allocated_bytes: u64,
    /// Events that were lost.
    pub dropped: u64,
    /// Ops in the steady iterations.
    pub ops: u64,
    /// Those whose time on the device is unknown.
    pub untimed_ops: u64,
    /// Ops of the whole traces that CUPTI was not asked for.
    pub unasked_ops: u64,
}

/// Measures the traces of one run.
#[must_use]
pub fn run(label: String, traces: impl Iterator<Item = (String, Trace)>) -> Run {
    let mut run = Run {
        label,
        confidence: 1.0,
        peak_is_exact: true,
        ..Run::default()
    };
    let mut samples = Vec::new();
    for (file, trace) in traces {
        run.files.push(file);
        rank(&mut run, &trace, &mut samples);
    }
    run.steady = samples.len();
    run.median = medians(&samples);
    run
}

fn rank(run: &mut Run, trace: &Trace, samples: &mut Vec<Sample>) {
    let header = &trace.header;
    let found = windows::of(trace);
    let steady = found.steady();
    run.job = files::command(header);
    run.iterations += found.list.len();
    run.confidence = run.confidence.min(found.confidence);
    run.policy = header
        .replayed_policy
        .clone()
        .unwrap_or_else(|| "not directed".to_owned());
    run.faults_recorded |= header.faults_recorded;
    run.emulated |= header.emulated_card_bytes.is_some();
    run.by_recorder |= header.emulated_card_bytes.is_some() && header.replayed_policy.is_none();
    let capacity = header.emulated_card_bytes.filter(|bytes| *bytes > 0);
    run.capacity_bytes = capacity.unwrap_or(header.device_total_bytes);
    let totals = &trace.totals;
    let allocated = totals.converted_peak_bytes + totals.unconverted_peak_bytes;
    run.peak_allocated_bytes = run.peak_allocated_bytes.max(allocated);
    let drops = &totals.drops;
    run.unasked_ops += totals.unasked_ops;
    run.dropped += drops.ops + drops.cupti + drops.unplaced + drops.bad_times;
    let replayed = residency::replay(trace, &steady);
    run.peak_is_exact &= replayed.peak_chunk_bytes.is_some();
    let peak = replayed
        .peak_chunk_bytes
        .map_or(allocated.min(run.capacity_bytes), |chunks| {
            chunks + totals.unconverted_peak_bytes
        });
    run.peak_resident_bytes = run.peak_resident_bytes.max(peak);
    let windows = steady
        .iter()
        .map(|one| trace.ops.get(one.first_op..one.end_op).unwrap_or(&[]));
    for op in windows.flatten() {
        run.ops += 1;
        run.untimed_ops += u64::from(op.end_ns.0 == 0);
    }
    let mut measured = measure(trace, &steady);
    if let Some(bytes) = replayed.zero_copy_bytes {
        run.zero_copy = true;
        for (sample, bytes) in measured.iter_mut().zip(bytes) {
            sample.zero_copy_bytes = bytes;
        }
    }
    samples.extend(measured);
}

/// Measures each of some windows.
#[must_use]
pub fn measure(trace: &Trace, windows: &[Window]) -> Vec<Sample> {
    let mut samples: Vec<Sample> = windows.iter().map(|window| of_ops(trace, window)).collect();
    let mut evicting: Vec<Vec<(u64, u64)>> = vec![Vec::new(); windows.len()];
    for (one, op) in trace
        .migrations
        .iter()
        .zip(assign::migrations_to_ops(trace))
    {
        let op = (op != assign::NO_OP).then_some(u64::from(op));
        let Some(at) = window_of(windows, op, one.start_ns.0) else {
            continue;
        };
        let Some(sample) = samples.get_mut(at) else {
            continue;
        };
        let moving_ns = one.end_ns.0.saturating_sub(one.start_ns.0) as f64;
        match one.direction {
            Direction::HtoD => {
                sample.htod += 1.0;
                sample.htod_bytes += one.bytes as f64;
                sample.htod_ns += moving_ns;
                sample.demand_migrations += f64::from(u8::from(touch::is_demand(one)));
            }
            Direction::DtoH => {
                sample.dtoh += 1.0;
                sample.dtoh_bytes += one.bytes as f64;
                sample.dtoh_ns += moving_ns;
                if let Some(list) = evicting.get_mut(at) {
                    list.push((one.start_ns.0, one.end_ns.0));
                }
            }
            Direction::DtoD => {}
        }
    }
    for fault in &trace.faults {
        let gpu = matches!(fault.kind, FaultKind::Read | FaultKind::Write);
        let at = window_of(windows, fault.op.map(|op| op.0), fault.start_ns.0);
        if let Some(sample) = at.filter(|_| gpu).and_then(|at| samples.get_mut(at)) {
            sample.fault_groups += fault.value.max(1) as f64;
        }
    }
    for (sample, list) in samples.iter_mut().zip(evicting) {
        sample.evicting_ns = union_ns(list);
    }
    samples
}

fn of_ops(trace: &Trace, window: &Window) -> Sample {
    let ops = trace.ops.get(window.first_op..window.end_op).unwrap_or(&[]);
    let timed = ops.iter().filter(|op| op.end_ns.0 > op.start_ns.0);
    let busy: Vec<(u64, u64)> = timed.map(|op| (op.start_ns.0, op.end_ns.0)).collect();
    // A lost record or two do not matter; a step of which CUPTI was asked for a part has no busy time.
    let whole = busy.len() * 100 >= ops.len() * 99;
    Sample {
        step_ns: window.duration_ns() as f64,
        busy_ns: if whole { union_ns(busy) } else { f64::NAN },
        launches: ops.len() as f64,
        ..Sample::default()
    }
}

/// The window an event lies in: by its op where known, else by its time.
fn window_of(windows: &[Window], op: Option<u64>, ns: u64) -> Option<usize> {
    let inside = |one: &Window| match op {
        Some(op) => (one.first_op as u64..one.end_op as u64).contains(&op),
        None => (one.start_ns..one.end_ns).contains(&ns),
    };
    let after = windows.partition_point(|one| match op {
        Some(op) => one.first_op as u64 <= op,
        None => one.start_ns <= ns,
    });
    let at = after.checked_sub(1)?;
    windows.get(at).filter(|one| inside(one)).map(|_| at)
}

/// Length of the union of intervals.
fn union_ns(mut list: Vec<(u64, u64)>) -> f64 {
    list.sort_unstable();
    let (mut sum, mut reached) = (0, 0);
    for (from, to) in list {
        sum += to.saturating_sub(from.max(reached));
        reached = reached.max(to);
    }
    sum as f64
}

fn medians(samples: &[Sample]) -> Sample {
    let of = |field: fn(&Sample) -> f64| {
        let values = samples.iter().map(field);
        let mut values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        if values.len() % 2 == 1 {
            at(middle)
        } else {
            f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
        }
    };
    Sample {
        step_ns: of(|one| one.step_ns),
        busy_ns: of(|one| one.busy_ns),
        launches: of(|one| one.launches),
        fault_groups: of(|one| one.fault_groups),
        demand_migrations: of(|one| one.demand_migrations),
        htod_bytes: of(|one| one.htod_bytes),
        htod: of(|one| one.htod),
        htod_ns: of(|one| one.htod_ns),
        dtoh_bytes: of(|one| one.dtoh_bytes),
        dtoh: of(|one| one.dtoh),
        dtoh_ns: of(|one| one.dtoh_ns),
        evicting_ns: of(|one| one.evicting_ns),
        zero_copy_bytes: of(|one| one.zero_copy_bytes),
    }
}

impl Run {
    /// The step time with the emulated eviction's time replaced by its bytes at the link's rate
    /// (GB/s), where that is shorter; `None` if nothing was emulated or evicted.
    #[must_use]
    pub fn step_at_link_rate_ns(&self, link_gb_per_s: f64) -> Option<f64> {
        let one = &self.median;
        if !self.emulated || one.dtoh_bytes <= 0.0 {
            return None;
        }
        // Bytes per nanosecond are GB/s.
        let replaced = one.step_ns - one.evicting_ns + one.dtoh_bytes / link_gb_per_s;
        Some(replaced.min(one.step_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Directed, Synthetic};

    fn of(directed: Directed) -> Run {
        let trace = Synthetic {
            directed,
            ..Synthetic::default()
        }
        .trace();
        run("x".to_owned(), std::iter::once(("x".to_owned(), trace)))
    }

    #[test]
    fn unions_do_not_count_time_twice() {
        assert!((union_ns(vec![(0, 10), (5, 12), (20, 21)]) - 13.0).abs() < 1e-9);
        assert!(union_ns(Vec::new()).abs() < 1e-9);
    }

    #[test]
    fn policies_show_what_they_change() {
        let (base, prefetch, advise) = (
            of(Directed::Base),
            of(Directed::Prefetch),
            of(Directed::Advise),
        );
        assert!(base.median.fault_groups > 0.0 && prefetch.median.fault_groups == 0.0);
        assert!(prefetch.median.demand_migrations == 0.0);
        let ratio = prefetch.median.htod_bytes / base.median.htod_bytes;
        assert!(
            (0.8..1.5).contains(&ratio),
            "the same bytes move, in larger pieces: {ratio}"
        );
        assert!(advise.zero_copy && advise.median.zero_copy_bytes > 0.0);
        assert_eq!(base.peak_resident_bytes, base.capacity_bytes);
        assert!(prefetch.peak_resident_bytes <= prefetch.capacity_bytes);
    }

    #[test]
    fn emulated_evictions_are_also_told_at_link_rate() {
        let base = of(Directed::Base);
        let fast = base.step_at_link_rate_ns(55.0).unwrap();
        assert!(fast < base.median.step_ns);
        let floor = base.median.step_ns - base.median.evicting_ns;
        assert!(fast > floor);
        let advise = of(Directed::Advise);
        assert!(advise.median.dtoh_bytes > 0.0 || advise.step_at_link_rate_ns(55.0).is_none());
    }
}

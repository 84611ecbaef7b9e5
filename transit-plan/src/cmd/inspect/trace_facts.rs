//! What `inspect` says of a trace, as values: counted once, printed as text or JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use transit_format::trace::check::Check;
use transit_format::trace::model::{Cause, Direction, FaultKind, Header, OpKind, Totals};
use transit_format::trace::{End, Trace};

use crate::cmd::windows::{self, Window, Windows};
use crate::render::names;

/// Everything `inspect` knows of a trace.
#[derive(Debug, Serialize)]
pub struct TraceFacts {
    /// Always `trace`.
    pub kind: &'static str,
    /// The file.
    pub file: String,
    /// Its size.
    pub file_bytes: u64,
    /// `closed` or `cut`.
    pub state: &'static str,
    /// Where it was cut, if it was.
    pub cut_at_offset: Option<u64>,
    /// Why reading ended there.
    pub cut_reason: Option<String>,
    /// Facts of the recorded process.
    pub header: Header,
    /// From the first op to the end of the last.
    pub duration_ns: u64,
    /// Ops by stream.
    pub streams: Vec<StreamFacts>,
    /// Iterations.
    pub iterations: Windows,
    /// Functions, the one with the most device time first.
    pub functions: Vec<FunctionFacts>,
    /// Allocations by size.
    pub alloc_classes: Vec<AllocClass>,
    /// Allocations never freed.
    pub live_allocs_at_end: u64,
    /// Migrations by direction and cause.
    pub migrations: Vec<MigrationFacts>,
    /// Faults and remote maps by kind.
    pub faults: Vec<FaultFacts>,
    /// The recorder's own totals.
    pub totals: Totals,
    /// Ops whose time on the device is unknown.
    pub untimed_ops: u64,
    /// The same for each iteration, in order.
    pub untimed_by_iteration: Vec<u64>,
    /// Whether CUPTI saw exactly the ops that the hooks saw; `None` without CUPTI.
    pub self_check: Option<bool>,
}

/// Ops of one stream by kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamFacts {
    /// `legacy`, `per-thread` or `created`, device and turn.
    pub stream: String,
    /// Kernel launches.
    pub kernels: u64,
    /// Graph launches.
    pub graphs: u64,
    /// Memsets on managed memory.
    pub memsets: u64,
    /// Memcpys on managed memory.
    pub memcpys: u64,
    /// Time its ops ran on the device.
    pub device_ns: u64,
}

/// One function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionFacts {
    /// Demangled name.
    pub name: String,
    /// Name as recorded.
    pub mangled: String,
    /// Launches.
    pub launches: u64,
    /// Device time of all of them.
    pub device_ns: u64,
}

/// Allocations of one size class.
#[derive(Clone, Debug, Serialize)]
pub struct AllocClass {
    /// Sizes from here on,
    pub from_bytes: u64,
    /// up to but without this.
    pub below_bytes: u64,
    /// Converted to managed memory.
    pub converted: u64,
    /// Not converted.
    pub unconverted: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// Migrations of one direction and cause.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MigrationFacts {
    /// `HtoD`, `DtoH` or `DtoD`.
    pub direction: String,
    /// The cause as CUPTI gives it.
    pub cause: String,
    /// How many.
    pub count: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum of their durations.
    pub moving_ns: u64,
}

/// Faults of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FaultFacts {
    /// What kind.
    pub kind: &'static str,
    /// Records.
    pub records: u64,
    /// Fault groups, or bytes for remote maps.
    pub value: u64,
}

/// Counts a trace.
#[must_use]
pub fn gather(trace: &Trace, file: &str, file_bytes: u64) -> TraceFacts {
    let start = trace.ops.iter().map(windows::began_ns).min().unwrap_or(0);
    let end = trace.ops.iter().map(windows::ended_ns).max().unwrap_or(0);
    let (state, cut_at_offset, cut_reason) = match &trace.end {
        End::Clean => ("closed", None, None),
        End::Cut { offset, reason } => ("cut", Some(*offset), Some(reason.clone())),
    };
    let totals = trace.totals.clone();
    let iterations = windows::of(trace);
    let checked = totals.check.as_ref().map(Check::complete);
    let cupti = trace.header.cupti_version > 0;
    TraceFacts {
        kind: "trace",
        file: file.to_owned(),
        file_bytes,
        state,
        cut_at_offset,
        cut_reason,
        header: trace.header.clone(),
        duration_ns: end.saturating_sub(start),
        streams: streams(trace),
        untimed_by_iteration: untimed_by_iteration(trace, &iterations),
        iterations,
        functions: functions(trace),
        alloc_classes: alloc_classes(trace),
        live_allocs_at_end: (trace.allocs.len() as u64).saturating_sub(trace.frees.len() as u64),
        migrations: migrations(trace),
        faults: faults(trace),
        untimed_ops: trace.ops.iter().filter(|op| op.end_ns.0 == 0).count() as u64,
        // Traces from before the check was kept have the two sums.
        self_check: checked.or_else(|| cupti.then_some(totals.hooked_ops == totals.cupti_ops)),
        totals,
    }
}

fn untimed_by_iteration(trace: &Trace, iterations: &Windows) -> Vec<u64> {
    let untimed = |window: &Window| {
        let ops = trace.ops.get(window.first_op..window.end_op);
        let ops = ops.unwrap_or_default().iter();
        ops.filter(|op| op.end_ns.0 == 0).count() as u64
    };
    iterations.list.iter().map(untimed).collect()
}

fn streams(trace: &Trace) -> Vec<StreamFacts> {
    let mut list: Vec<StreamFacts> = trace
        .streams
        .iter()
        .map(|stream| StreamFacts {
            stream: stream_name(stream),
            ..StreamFacts::default()
        })
        .collect();
    for op in &trace.ops {
        let Some(facts) = list.get_mut(op.stream.index()) else {
            continue;
        };
        match op.kind {
            OpKind::Kernel => facts.kernels += 1,
            OpKind::Graph => facts.graphs += 1,
            OpKind::Memset => facts.memsets += 1,
            OpKind::Memcpy => facts.memcpys += 1,
        }
        facts.device_ns += op.end_ns.0.saturating_sub(op.start_ns.0);
    }
    list
}

/// `created 0 on device 0`, as people speak of a stream.
#[must_use]
pub fn stream_name(stream: &transit_format::trace::model::Stream) -> String {
    use transit_format::trace::model::StreamKind;
    let device = stream.device;
    match stream.kind {
        StreamKind::Legacy => format!("legacy, device {device}"),
        StreamKind::PerThread => format!("per-thread {}, device {device}", stream.turn),
        StreamKind::Created => format!("created {}, device {device}", stream.turn),
    }
}

fn functions(trace: &Trace) -> Vec<FunctionFacts> {
    let mut sums = vec![(0_u64, 0_u64); trace.functions.len()];
    for op in &trace.ops {
        if let Some((launches, device_ns)) = sums.get_mut(op.function.index()) {
            *launches += 1;
            *device_ns += op.end_ns.0.saturating_sub(op.start_ns.0);
        }
    }
    let mut list: Vec<FunctionFacts> = trace
        .functions
        .iter()
        .zip(sums)
        .map(|(function, (launches, device_ns))| FunctionFacts {
            name: names::demangled(&function.name),
            mangled: function.name.clone(),
            launches,
            device_ns,
        })
        .collect();
    list.sort_by_key(|one| std::cmp::Reverse((one.device_ns, one.launches)));
    list
}

fn alloc_classes(trace: &Trace) -> Vec<AllocClass> {
    let mut classes: BTreeMap<u32, AllocClass> = BTreeMap::new();
    for alloc in &trace.allocs {
        // Classes of four powers of two: 2 to 32 MiB, 32 to 512 MiB, ...; below 2 MiB is one.
        let power = alloc.bytes.max(1).ilog2();
        let low = if power < 21 {
            0
        } else {
            21 + (power - 21) / 4 * 4
        };
        let high = if low == 0 { 21 } else { low + 4 };
        let class = classes.entry(low).or_insert_with(|| AllocClass {
            from_bytes: if low == 0 { 0 } else { 1 << low },
            below_bytes: 1_u64.checked_shl(high).unwrap_or(u64::MAX),
            converted: 0,
            unconverted: 0,
            bytes: 0,
        });
        if alloc.converted {
            class.converted += 1;
        } else {
            class.unconverted += 1;
        }
        class.bytes += alloc.bytes;
    }
    classes.into_values().collect()
}

fn migrations(trace: &Trace) -> Vec<MigrationFacts> {
    let mut sums: BTreeMap<(u8, u8), MigrationFacts> = BTreeMap::new();
    for one in &trace.migrations {
        let key = (one.direction as u8, one.cause as u8);
        let facts = sums.entry(key).or_insert_with(|| MigrationFacts {
            direction: direction_name(one.direction).to_owned(),
            cause: cause_name(one.cause).to_owned(),
            ..MigrationFacts::default()
        });
        facts.count += 1;
        facts.bytes += one.bytes;
        facts.moving_ns += one.end_ns.0.saturating_sub(one.start_ns.0);
    }
    sums.into_values().collect()
}

/// The direction as figures and tables write it.
#[must_use]
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::HtoD => "HtoD",
        Direction::DtoH => "DtoH",
        Direction::DtoD => "DtoD",
    }
}

/// The cause in a few words.
#[must_use]
pub fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Unknown => "not said",
        Cause::User => "prefetch or advise call",
        Cause::Coherence => "fault",
        Cause::Prefetch => "driver's tree prefetch",
        Cause::Eviction => "eviction",
        Cause::AccessCounters => "access counters",
    }
}

fn faults(trace: &Trace) -> Vec<FaultFacts> {
    let kinds = [
        (FaultKind::Read, "GPU read faults"),
        (FaultKind::Write, "GPU write faults"),
        (FaultKind::RemoteMap, "remote maps (zero-copy)"),
        (FaultKind::Cpu, "CPU faults"),
    ];
    let mut list = Vec::new();
    for (kind, name) in kinds {
        let mut facts = FaultFacts {
            kind: name,
            ..FaultFacts::default()
        };
        for fault in trace.faults.iter().filter(|fault| fault.kind == kind) {
            facts.records += 1;
            facts.value += fault.value;
        }
        if facts.records > 0 {
            list.push(facts);
        }
    }
    list
}

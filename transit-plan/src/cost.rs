//! What a policy's iteration is predicted to cost: faults, bytes, exposed and whole time.

use std::collections::HashMap;

use serde::Serialize;
use transit_format::ids::FunctionId;
use transit_format::trace::Trace;
use transit_format::trace::model::{Cause, Op};

use crate::num::{float, wide};
use crate::policy::{Outcome, Policy};
use crate::profile::{Profile, transfer_ns};
use crate::ranges::Span;
use crate::space::CHUNK_BYTES;
use crate::timeline::Timeline;
use crate::touch::{Touches, is_demand};
use crate::unrolled::Unrolled;

/// One steady iteration under a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Faults that migrate memory.
    pub migrating_faults: u64,
    /// Bytes to the device.
    pub htod_bytes: u64,
    /// Bytes to the host.
    pub dtoh_bytes: u64,
    /// Bytes accessed in place on the host.
    pub zero_copy_bytes: u64,
    /// Prefetch requests.
    pub prefetch_calls: u64,
    /// Most bytes on the card at once, in whole chunks.
    pub peak_resident_bytes: u64,
    /// Time in which the GPU waits for memory.
    pub exposed_ns: u64,
    /// The whole iteration: kernels plus exposed time.
    pub iteration_ns: u64,
}

/// What all predictions for a trace share.
#[derive(Clone, Debug)]
pub struct Basis {
    /// Kernel time of one iteration with everything resident.
    pub compute_ns: f64,
    /// Bytes that one fault brought in, on average.
    pub bytes_per_fault: f64,
}

impl Basis {
    /// Measures a trace.
    #[must_use]
    pub fn new(
        timeline: &Timeline<'_>,
        unrolled: &Unrolled,
        touches: &Touches,
        profile: &Profile,
    ) -> Self {
        let durations = Durations::of(timeline.trace());
        let compute = (0..unrolled.ops.len()).map(|place| {
            let least_ns = durations.least_ns(timeline, unrolled, place);
            compute_ns(least_ns, touches.demanded(place), profile)
        });
        let demand = timeline.trace().migrations.iter().filter(|m| is_demand(m));
        let faults = demand
            .clone()
            .filter(|m| m.cause == Cause::Coherence)
            .count();
        let bytes: u64 = demand.map(|migration| migration.bytes).sum();
        let bytes_per_fault = if faults == 0 {
            profile.fault_bytes
        } else {
            float(bytes) / float(wide(faults))
        };
        Self {
            compute_ns: compute.sum(),
            bytes_per_fault,
        }
    }

    /// The prediction for a policy's outcome.
    #[must_use]
    pub fn predict(&self, policy: Policy, outcome: &Outcome, profile: &Profile) -> Prediction {
        let counts = &outcome.counts;
        // The plan's own evictions are the slow ones.
        let evict_gbps = if outcome.plans_evictions {
            profile.evict_emulated_gbps
        } else {
            profile.evict_full_gbps
        };
        let calls_us = float(counts.prefetch_calls) * profile.prefetch_call_us
            + float(counts.refreshed_bytes / CHUNK_BYTES) * profile.resident_prefetch_us;
        let mut exposed = transfer_ns(counts.demand_bytes, profile.fault_gbps)
            + transfer_ns(counts.evicted_bytes, evict_gbps)
            + transfer_ns(counts.prefetch_bytes, profile.prefetch_gbps)
            + calls_us * 1e3;
        if policy == Policy::Advise {
            // What pools hold goes on migrating.
            exposed = transfer_ns(counts.zero_copy_bytes, profile.zero_copy_gbps)
                + transfer_ns(counts.demand_bytes, profile.fault_gbps)
                + transfer_ns(counts.evicted_bytes, profile.evict_full_gbps);
        }
        Prediction {
            migrating_faults: whole(float(counts.demand_bytes) / self.bytes_per_fault),
            htod_bytes: counts.demand_bytes + counts.prefetch_bytes,
            dtoh_bytes: counts.evicted_bytes,
            zero_copy_bytes: counts.zero_copy_bytes,
            prefetch_calls: counts.prefetch_calls,
            peak_resident_bytes: u64::from(counts.peak_chunks) * CHUNK_BYTES,
            exposed_ns: whole(exposed),
            iteration_ns: whole(exposed + self.compute_ns),
        }
    }
}

/// How long ops take: those of the iterations looked at, or where CUPTI was not asked for any of
/// them, ops of the same function and shape anywhere in the trace.
struct Durations(HashMap<(FunctionId, u32), u64>);

impl Durations {
    fn of(trace: &Trace) -> Self {
        let mut least: HashMap<(FunctionId, u32), u64> = HashMap::new();
        for op in &trace.ops {
            if let Some(duration) = duration_ns(op) {
                let known = least.entry((op.function, op.shape)).or_insert(u64::MAX);
                *known = duration.min(*known);
            }
        }
        Self(least)
    }

    /// The least time of the op at a place; 0 if none is known.
    fn least_ns(&self, timeline: &Timeline<'_>, unrolled: &Unrolled, place: usize) -> u64 {
        let seqs = unrolled.counterparts_of(place).flatten();
        let counterparts = seqs.filter_map(|seq| timeline.op(seq));
        let least = counterparts.filter_map(duration_ns).min();
        let own = unrolled.ops.get(place).and_then(|op| timeline.op(op.seq));
        let alike = || self.0.get(&own.map(|op| (op.function, op.shape))?).copied();
        least.or_else(alike).unwrap_or(0)
    }
}

/// An op's time on the device, if it has one.
fn duration_ns(op: &Op) -> Option<u64> {
    (op.end_ns.0 != 0).then(|| op.end_ns.0.saturating_sub(op.start_ns.0))
}

/// An op's time without its migrations.
fn compute_ns(least: u64, demanded: &[Span], profile: &Profile) -> f64 {
    let moved = demanded.iter().map(Span::bytes).sum();
    (float(least) - transfer_ns(moved, profile.fault_gbps)).max(0.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates are positive and far below 2^53; a cast saturates"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

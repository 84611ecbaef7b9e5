//! From a trace to plans: the phase, the card, one plan and prediction per policy.

use transit_format::ids::{OpSeq, StreamId};
use transit_format::plan::model::{Meta, Plan, Shape};
use transit_format::trace::Trace;

use crate::compose;
use crate::cost::{Basis, Prediction};
use crate::error::Next;
use crate::iterations::{self, Boundary, Phase};
use crate::num::{index, wide};
use crate::policy::{self, Inputs, Outcome, Policy};
use crate::profile::Profile;
use crate::render::names::demangled;
use crate::space::{CHUNK_BYTES, Space};
use crate::timeline::Timeline;
use crate::touch::{Touches, is_demand};
use crate::unrolled::Unrolled;

/// The paper's gap: ranges of one op at most this far apart are fetched as one.
pub const PAPER_GAP_BYTES: u64 = 128 << 10;
/// Share of the card kept free, in percent: the driver's and the job's memory is not known to the
/// byte.
pub const RESERVE_PERCENT: u64 = 3;

/// What to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// Policies to build, each once.
    pub policies: Vec<Policy>,
    /// Memory of the card to plan for; from the trace if `None`.
    pub hbm_bytes: Option<u64>,
    /// Whether plans keep within the card by evictions of their own.
    pub emulate: bool,
    /// The emulated card, if it is not the one planned for.
    pub card_bytes: Option<u64>,
    /// Largest gap between ranges fetched as one.
    pub gap_bytes: u64,
    /// Whether prefetches are the recorded migrations only.
    pub paper_literal: bool,
    /// How to find the iteration.
    pub boundary: Boundary,
    /// Costs.
    pub profile: Profile,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policies: Policy::ALL.to_vec(),
            hbm_bytes: None,
            emulate: false,
            card_bytes: None,
            gap_bytes: PAPER_GAP_BYTES,
            paper_literal: false,
            boundary: Boundary::Auto,
            profile: Profile::default(),
        }
    }
}

/// Memory to plan with, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The card.
    pub hbm_bytes: u64,
    /// Most unconverted memory the job held at once: it cannot be moved.
    pub unconverted_bytes: u64,
    /// Kept free.
    pub reserve_bytes: u64,
    /// What is left for managed memory, in whole chunks.
    pub managed_bytes: u64,
}

impl Capacity {
    /// Chunks that fit if nothing is kept in reserve.
    #[must_use]
    pub fn card_chunks(&self) -> u64 {
        self.hbm_bytes.saturating_sub(self.unconverted_bytes) / CHUNK_BYTES
    }
}

/// One policy's plan.
#[derive(Clone, Debug)]
pub struct Built {
    /// The policy.
    pub policy: Policy,
    /// The plan.
    pub plan: Plan,
    /// What a steady iteration under it should cost; `None` without a phase.
    pub prediction: Option<Prediction>,
    /// Things a reader should know.
    pub notes: Vec<String>,
}

/// Everything found in one trace.
#[derive(Clone, Debug)]
pub struct Study {
    /// The iteration, if one was found (confident or not).
    pub phase: Option<Phase>,
    /// Ops of the steady iteration on all streams.
    pub ops_per_iteration: u32,
    /// The card.
    pub capacity: Capacity,
    /// Bytes of managed memory that the steady iteration touches, in whole chunks.
    pub touched_bytes: u64,
    /// Kernel time of an iteration with everything resident, in nanoseconds.
    pub compute_ns: f64,
    /// Plans, in the order asked for.
    pub built: Vec<Built>,
}

impl Study {
    /// Whether plans hold steps, not placements only.
    #[must_use]
    pub fn has_phase(&self) -> bool {
        self.phase.as_ref().is_some_and(Phase::is_confident)
    }

    /// The plan with the least predicted iteration time; the first one without predictions.
    #[must_use]
    pub fn best(&self) -> Option<&Built> {
        self.built
            .iter()
            .min_by_key(|built| built.prediction.as_ref().map(|p| p.iteration_ns))
    }
}

/// Builds plans. `trace_hash` names the trace in them; `say` is told what is being done.
///
/// # Errors
/// If the card leaves no room for managed memory.
pub fn study(
    trace: &Trace,
    trace_hash: &str,
    options: &Options,
    mut say: impl FnMut(&'static str),
) -> anyhow::Result<Study> {
    let capacity = capacity(trace, options)?;
    say("laying out the trace");
    let timeline = Timeline::new(trace);
    say("looking for the iteration");
    check_boundary(trace, &options.boundary)?;
    let phase = iterations::find(&timeline, &options.boundary);
    let unrolled = phase
        .as_ref()
        .filter(|phase| phase.is_confident())
        .and_then(|phase| Unrolled::new(&timeline, phase));
    let mut study = Study {
        phase,
        ops_per_iteration: 0,
        capacity,
        touched_bytes: 0,
        compute_ns: 0.0,
        built: Vec::new(),
    };
    let context = Context {
        timeline: &timeline,
        options,
        capacity,
        trace_hash,
    };
    match unrolled {
        Some(unrolled) => context.with_phase(&unrolled, &mut study, say),
        None => context.without_phase(&mut study),
    }
    Ok(study)
}

/// Refuses a boundary that names nothing: silently planning without iterations would hide a typing
/// mistake.
fn check_boundary(trace: &Trace, boundary: &Boundary) -> anyhow::Result<()> {
    let there = match boundary {
        Boundary::Auto => true,
        Boundary::Op(seq) => wide(trace.ops.len()) > u64::from(*seq),
        Boundary::Pattern(pattern) => trace.functions.iter().any(|function| {
            pattern.is_match(&function.name) || pattern.is_match(&demangled(&function.name))
        }),
    };
    if there {
        return Ok(());
    }
    let what = match boundary {
        Boundary::Op(seq) => format!("op {seq} is past the last of {} ops", trace.ops.len()),
        _ => "no function of the trace has a name that matches".to_owned(),
    };
    Err(anyhow::anyhow!("--boundary-op: {what}"))
        .next("transit-plan inspect lists the functions, with --ops the ops")
}

/// What is left of the card for managed memory.
fn capacity(trace: &Trace, options: &Options) -> anyhow::Result<Capacity> {
    let recorded = trace.header.emulated_card_bytes.filter(|bytes| *bytes > 0);
    let card = options.card_bytes.filter(|_| options.emulate);
    let total = Some(trace.header.device_total_bytes).filter(|bytes| *bytes > 0);
    let Some(hbm_bytes) = card.or(options.hbm_bytes).or(recorded).or(total) else {
        return Err(anyhow::anyhow!(
            "the trace does not say how much memory the device has"
        ))
        .next("say it with --hbm, for instance --hbm 80GiB");
    };
    let unconverted_bytes = trace.totals.unconverted_peak_bytes;
    let reserve_bytes = hbm_bytes / 100 * RESERVE_PERCENT;
    let left = hbm_bytes
        .saturating_sub(unconverted_bytes)
        .saturating_sub(reserve_bytes);
    let managed_bytes = left / CHUNK_BYTES * CHUNK_BYTES;
    if managed_bytes == 0 {
        return Err(anyhow::anyhow!(
            "a card of {hbm_bytes} bytes leaves nothing for managed memory: {unconverted_bytes} \
             bytes are unconverted, {reserve_bytes} are kept as reserve"
        ))
        .next("give a larger --hbm or --emulate=, for instance 80GiB");
    }
    Ok(Capacity {
        hbm_bytes,
        unconverted_bytes,
        reserve_bytes,
        managed_bytes,
    })
}

struct Context<'a> {
    timeline: &'a Timeline<'a>,
    options: &'a Options,
    capacity: Capacity,
    trace_hash: &'a str,
}

impl Context<'_> {
    fn with_phase(
        &self,
        unrolled: &Unrolled,
        study: &mut Study,
        mut say: impl FnMut(&'static str),
    ) {
        say("finding what each op touches");
        let (from, to) = unrolled.seq_range();
        let space = Space::new(self.timeline, OpSeq(u64::from(from)), OpSeq(u64::from(to)));
        let touches = Touches::new(self.timeline, unrolled, &space);
        let freed = freed_chunks(self.timeline, unrolled, &space);
        let chunks = self.capacity.managed_bytes / CHUNK_BYTES;
        let inputs = Inputs {
            unrolled,
            space: &space,
            touches: &touches,
            freed: &freed,
            capacity_chunks: u32::try_from(chunks).unwrap_or(u32::MAX),
            card_chunks: u32::try_from(self.capacity.card_chunks()).unwrap_or(u32::MAX),
            gap_bytes: self.options.gap_bytes,
            emulate: self.options.emulate,
            recorded_bytes: self.recorded_bytes(unrolled),
            paper_literal: self.options.paper_literal,
        };
        say("simulating policies");
        let profile = &self.options.profile;
        let basis = Basis::new(self.timeline, unrolled, &touches, profile);
        study.ops_per_iteration = crate::num::narrow(unrolled.ops.len());
        study.touched_bytes = touched_bytes(&touches, &space);
        study.compute_ns = basis.compute_ns;
        for policy in &self.options.policies {
            let cost_ns = |o: &Outcome| basis.predict(*policy, o, profile).iteration_ns;
            let outcome = policy::plan(*policy, &inputs, cost_ns);
            let prediction = basis.predict(*policy, &outcome, profile);
            let meta = self.meta(*policy, study.phase.as_ref(), Some(&outcome));
            let plan = compose::plan(
                self.timeline,
                unrolled,
                &space,
                &outcome,
                meta,
                self.shape(),
            );
            study.built.push(Built {
                policy: *policy,
                plan,
                prediction: Some(prediction),
                notes: outcome.notes,
            });
        }
    }

    /// What an iteration moved to the card on demand, on average over those looked at, if the
    /// recording is of the driver alone on the card planned for.
    fn recorded_bytes(&self, unrolled: &Unrolled) -> Option<u64> {
        let header = &self.timeline.trace().header;
        let recorded = header.emulated_card_bytes.filter(|bytes| *bytes > 0);
        let card = recorded.unwrap_or(header.device_total_bytes);
        if card != self.capacity.hbm_bytes || header.replayed_policy.is_some() {
            return None;
        }
        let iterations = u64::try_from(unrolled.counterparts.len()).ok()?;
        let seqs = unrolled.counterparts.iter().flatten().flatten();
        let moved = seqs.flat_map(|seq| self.timeline.migrations_of(*seq));
        let bytes: u64 = moved.filter(|m| is_demand(m)).map(|m| m.bytes).sum();
        bytes.checked_div(iterations)
    }

    fn without_phase(&self, study: &mut Study) {
        for policy in &self.options.policies {
            let meta = self.meta(*policy, study.phase.as_ref(), None);
            let plan = compose::without_phase(self.timeline, *policy, meta, self.shape());
            study.built.push(Built {
                policy: *policy,
                plan,
                prediction: None,
                notes: Vec::new(),
            });
        }
    }

    fn shape(&self) -> Shape {
        Shape {
            capacity_bytes: self.capacity.managed_bytes,
            card_bytes: if self.options.emulate {
                self.capacity.hbm_bytes
            } else {
                0
            },
            main_stream: StreamId(0),
            min_convert_bytes: self.timeline.trace().header.min_convert_bytes,
            ..Shape::default()
        }
    }

    fn meta(&self, policy: Policy, phase: Option<&Phase>, outcome: Option<&Outcome>) -> Meta {
        let header = &self.timeline.trace().header;
        let options = self.options;
        let mut choices = vec![
            ("hbm_bytes".to_owned(), self.capacity.hbm_bytes.to_string()),
            (
                "unconverted_peak_bytes".to_owned(),
                self.capacity.unconverted_bytes.to_string(),
            ),
            (
                "reserve_bytes".to_owned(),
                self.capacity.reserve_bytes.to_string(),
            ),
            ("emulate".to_owned(), options.emulate.to_string()),
            ("gap_bytes".to_owned(), options.gap_bytes.to_string()),
            (
                "paper_literal".to_owned(),
                options.paper_literal.to_string(),
            ),
            ("device_profile".to_owned(), options.profile.name.clone()),
        ];
        if let Some(outcome) = outcome {
            choices.push((
                "residency_converged".to_owned(),
                outcome.converged.to_string(),
            ));
        }
        Meta {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            policy: policy.name().to_owned(),
            command: header.command.clone(),
            rank: header.rank,
            device_name: header.device_name.clone(),
            trace_hash: self.trace_hash.to_owned(),
            boundary_evidence: phase
                .map_or("none", |phase| phase.evidence.name())
                .to_owned(),
            confidence: phase.map_or(0.0, |phase| phase.confidence),
            choices,
        }
    }
}

/// Chunks freed within the steady iteration, each with the place of the op it is freed before.
fn freed_chunks(timeline: &Timeline<'_>, unrolled: &Unrolled, space: &Space) -> Vec<(usize, u32)> {
    let (from, to) = unrolled.seq_range();
    let mut freed = Vec::new();
    for free in &timeline.trace().frees {
        let at = u32::try_from(free.at_op.0).unwrap_or(u32::MAX);
        if at <= from || at > to {
            continue;
        }
        let place = unrolled.ops.partition_point(|op| op.seq < at);
        freed.extend(space.chunks_of(free.alloc).map(|chunk| (place, chunk)));
    }
    freed.sort_unstable();
    freed
}

fn touched_bytes(touches: &Touches, space: &Space) -> u64 {
    let mut seen = vec![false; index(space.chunks())];
    for touch in touches.touched.iter().flatten() {
        if let Some(seen) = seen.get_mut(index(touch.chunk)) {
            *seen = true;
        }
    }
    crate::num::wide(seen.into_iter().filter(|seen| *seen).count()) * CHUNK_BYTES
}

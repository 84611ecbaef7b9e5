//! What `inspect` says of a plan: values for JSON, and their text.

use std::collections::BTreeMap;

use serde::Serialize;
use transit_format::plan::model::{Action, Meta, Plan, Range, Shape, Step};

use crate::cmd::inspect::trace_facts::stream_name;
use crate::render::names;
use crate::render::table::{self, Rows, Style};
use crate::render::units;

/// Everything `inspect` knows of a plan.
#[derive(Debug, Serialize)]
pub struct PlanFacts {
    /// Always `plan`.
    pub kind: &'static str,
    /// The file.
    pub file: String,
    /// Its size.
    pub file_bytes: u64,
    /// Provenance.
    pub meta: Meta,
    /// Numbers.
    pub shape: Shape,
    /// Allocations the plan speaks of.
    pub allocs: u64,
    /// Bytes of them.
    pub alloc_bytes: u64,
    /// Ops of the iteration, by stream.
    pub streams: Vec<(String, u64)>,
    /// Steps by action.
    pub steps: Vec<ActionFacts>,
    /// Placements by action.
    pub placements: Vec<ActionFacts>,
    /// Bytes on the device when a steady iteration starts (emulated card only).
    pub start_resident_bytes: u64,
    /// The ops with the most bytes to move, first.
    pub biggest_ops: Vec<OpFacts>,
}

/// Steps or placements of one action.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ActionFacts {
    /// What is done.
    pub action: &'static str,
    /// How often.
    pub count: u64,
    /// On how many ranges.
    pub ranges: u64,
    /// On how many bytes.
    pub bytes: u64,
}

/// One op that has steps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpFacts {
    /// Stream of the plan.
    pub stream: u32,
    /// Ordinal within the iteration.
    pub ordinal: u32,
    /// Demangled name.
    pub name: String,
    /// Bytes to the device.
    pub prefetch_bytes: u64,
    /// Bytes to the host.
    pub evict_bytes: u64,
    /// Bytes advised.
    pub advise_bytes: u64,
}

/// The action in a few words.
#[must_use]
pub fn action_name(action: Action) -> &'static str {
    match action {
        Action::PrefetchToDevice => "prefetch to device",
        Action::EvictToHost => "evict to host",
        Action::AdviseAccessedBy => "advise accessed-by",
        Action::AdvisePreferHost => "advise prefer host",
        Action::AdviseReadMostly => "advise read-mostly",
    }
}

fn bytes_of(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.bytes).sum()
}

/// Counts a plan.
#[must_use]
pub fn gather(plan: &Plan, file: &str, file_bytes: u64) -> PlanFacts {
    let mut placements: BTreeMap<u8, ActionFacts> = BTreeMap::new();
    for one in &plan.placements {
        tally(
            &mut placements,
            one.action,
            std::slice::from_ref(&one.range),
        );
    }
    let mut steps: BTreeMap<u8, ActionFacts> = BTreeMap::new();
    for step in &plan.steps {
        tally(&mut steps, step.action, &step.ranges);
    }
    PlanFacts {
        kind: "plan",
        file: file.to_owned(),
        file_bytes,
        meta: plan.meta.clone(),
        shape: plan.shape,
        allocs: plan.allocs.len() as u64,
        alloc_bytes: plan.allocs.iter().map(|alloc| alloc.bytes).sum(),
        streams: plan
            .streams
            .iter()
            .map(|stream| (stream_name(&stream.stream), stream.ops.len() as u64))
            .collect(),
        steps: steps.into_values().collect(),
        placements: placements.into_values().collect(),
        start_resident_bytes: bytes_of(&plan.start_resident),
        biggest_ops: biggest_ops(plan),
    }
}

fn tally(sums: &mut BTreeMap<u8, ActionFacts>, action: Action, ranges: &[Range]) {
    let facts = sums.entry(action as u8).or_default();
    facts.action = action_name(action);
    facts.count += 1;
    facts.ranges += ranges.len() as u64;
    facts.bytes += bytes_of(ranges);
}

/// The mangled name of the op a step precedes.
#[must_use]
pub fn op_name<'p>(plan: &'p Plan, step: &Step) -> &'p str {
    plan.streams
        .get(step.stream.index())
        .and_then(|stream| stream.ops.get(step.ordinal.index()))
        .and_then(|op| {
            plan.names
                .get(usize::try_from(op.name).unwrap_or(usize::MAX))
        })
        .map_or("?", String::as_str)
}

fn biggest_ops(plan: &Plan) -> Vec<OpFacts> {
    let mut ops: BTreeMap<(u32, u32), OpFacts> = BTreeMap::new();
    for step in &plan.steps {
        let facts = ops
            .entry((step.stream.0, step.ordinal.0))
            .or_insert_with(|| OpFacts {
                stream: step.stream.0,
                ordinal: step.ordinal.0,
                name: names::demangled(op_name(plan, step)),
                ..OpFacts::default()
            });
        let bytes = bytes_of(&step.ranges);
        match step.action {
            Action::PrefetchToDevice => facts.prefetch_bytes += bytes,
            Action::EvictToHost => facts.evict_bytes += bytes,
            _ => facts.advise_bytes += bytes,
        }
    }
    let mut list: Vec<OpFacts> = ops.into_values().collect();
    list.sort_by_key(|op| std::cmp::Reverse(op.prefetch_bytes + op.evict_bytes + op.advise_bytes));
    list
}

/// The whole text; `top` ops are listed.
#[must_use]
pub fn text(facts: &PlanFacts, top: usize) -> String {
    let mut text = head(facts);
    text.push_str(&actions("steps of one iteration", "steps", &facts.steps));
    text.push_str(&actions("placements", "placements", &facts.placements));
    let mut rows = Rows::new([
        "biggest ops",
        "stream",
        "ordinal",
        "prefetch",
        "evict",
        "advise",
    ]);
    for op in facts.biggest_ops.iter().take(top) {
        rows.push([
            names::clipped(&op.name, 50),
            op.stream.to_string(),
            units::count(u64::from(op.ordinal)),
            units::bytes(op.prefetch_bytes),
            units::bytes(op.evict_bytes),
            units::bytes(op.advise_bytes),
        ]);
    }
    if !rows.is_empty() {
        text.push_str(&format!("\n{}", rows.render(Style::Plain)));
    }
    text
}

fn head(facts: &PlanFacts) -> String {
    let (meta, shape) = (&facts.meta, &facts.shape);
    let card = match shape.card_bytes {
        0 => String::new(),
        bytes => format!(", emulating a card of {}", units::bytes(bytes)),
    };
    let streams: Vec<String> = facts
        .streams
        .iter()
        .map(|(name, ops)| format!("{} ({name})", units::counted(*ops, "op", "ops")))
        .collect();
    let midpoint = if shape.advise_all_at_midpoint {
        format!(
            "all tracked allocations, accessed-by, before op {}",
            shape.midpoint
        )
    } else {
        String::new()
    };
    let choices: Vec<String> = meta
        .choices
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    table::facts(&[
        (
            "plan",
            format!("{} ({})", facts.file, units::bytes(facts.file_bytes)),
        ),
        ("policy", format!("{}{card}", meta.policy)),
        ("capacity", units::bytes(shape.capacity_bytes)),
        ("job", meta.command.join(" ")),
        (
            "rank",
            meta.rank.map(|rank| rank.to_string()).unwrap_or_default(),
        ),
        (
            "trace",
            format!("crc32 {} of {}", meta.trace_hash, meta.device_name),
        ),
        ("planner", format!("transit {}", meta.tool_version)),
        (
            "phase",
            format!(
                "by {}, confidence {:.2}",
                meta.boundary_evidence, meta.confidence
            ),
        ),
        ("iteration", streams.join("\n")),
        ("advise", midpoint),
        (
            "memory",
            format!(
                "{} of {}",
                units::counted(facts.allocs, "allocation", "allocations"),
                units::bytes(facts.alloc_bytes)
            ),
        ),
        (
            "at start",
            if facts.start_resident_bytes > 0 {
                format!("{} on the device", units::bytes(facts.start_resident_bytes))
            } else {
                String::new()
            },
        ),
        ("choices", choices.join("\n")),
    ])
}

fn actions(title: &str, unit: &str, list: &[ActionFacts]) -> String {
    if list.is_empty() {
        return format!("\n{title}: none\n");
    }
    let mut rows = Rows::new([title, unit, "ranges", "bytes"]);
    for one in list {
        rows.push([
            one.action.to_owned(),
            units::count(one.count),
            units::count(one.ranges),
            units::bytes(one.bytes),
        ]);
    }
    format!("\n{}", rows.render(Style::Plain))
}

/// `--steps`: every step, one line each.
#[must_use]
pub fn steps(plan: &Plan) -> String {
    if plan.steps.is_empty() {
        return "no steps: nothing is moved before single ops\n".to_owned();
    }
    let mut rows = Rows::new([
        "stream",
        "ordinal",
        "op",
        "action",
        "ranges",
        "bytes",
        "first range",
    ])
    .text_columns([2, 3, 6]);
    for step in &plan.steps {
        let first = step.ranges.first().map_or_else(String::new, |range| {
            format!(
                "alloc {} +{} ({})",
                range.alloc,
                range.offset,
                units::bytes(range.bytes)
            )
        });
        rows.push([
            step.stream.to_string(),
            step.ordinal.to_string(),
            names::short(op_name(plan, step), 40),
            action_name(step.action).to_owned(),
            step.ranges.len().to_string(),
            units::bytes(bytes_of(&step.ranges)),
            first,
        ]);
    }
    rows.render(Style::Plain)
}

/// `--ops`: every op of the iteration, one line each.
#[must_use]
pub fn ops(plan: &Plan) -> String {
    let mut rows = Rows::new(["stream", "ordinal", "op", "kind", "pointers"]).text_columns([2, 3]);
    for (place, stream) in plan.streams.iter().enumerate() {
        for (ordinal, op) in stream.ops.iter().enumerate() {
            let name = plan
                .names
                .get(usize::try_from(op.name).unwrap_or(usize::MAX));
            rows.push([
                place.to_string(),
                ordinal.to_string(),
                names::short(name.map_or("?", String::as_str), 60),
                format!("{:?}", op.kind).to_lowercase(),
                op.pointers.len().to_string(),
            ]);
        }
    }
    rows.render(Style::Plain)
}

/// `--allocs`: every allocation the plan speaks of.
#[must_use]
pub fn allocs(plan: &Plan) -> String {
    let mut rows = Rows::new(["alloc", "ordinal", "turn", "bytes", "device"]);
    for (place, alloc) in plan.allocs.iter().enumerate() {
        rows.push([
            place.to_string(),
            alloc.ordinal.to_string(),
            alloc.turn.to_string(),
            units::bytes(alloc.bytes),
            alloc.device.to_string(),
        ]);
    }
    rows.render(Style::Plain)
}

//! What `build` says about a trace: the iteration it found, the card it planned for, and what each
//! policy should cost.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use transit_format::plan::model::Action;

use crate::build::{Built, Study};
use crate::compose;
use crate::num::{float, wide};
use crate::policy::Policy;
use crate::render::table::{Rows, Style, facts};
use crate::render::units;

/// The summary for people.
#[must_use]
pub fn text(trace: &Path, study: &Study, chosen: &[Policy]) -> String {
    let capacity = &study.capacity;
    let card = format!(
        "{} = {} less {} unconverted and {} reserve",
        units::bytes(capacity.managed_bytes),
        units::bytes(capacity.hbm_bytes),
        units::bytes(capacity.unconverted_bytes),
        units::bytes(capacity.reserve_bytes),
    );
    let mut rows = vec![
        ("trace", trace.display().to_string()),
        ("iterations", iterations(study)),
        ("managed memory fits", card),
    ];
    if study.touched_bytes > 0 {
        let percent = float(study.touched_bytes) / float(capacity.managed_bytes) * 100.0;
        let touched = units::bytes(study.touched_bytes);
        rows.push((
            "an iteration touches",
            format!("{touched}, {percent:.0} % of that"),
        ));
    }
    let mut text = facts(&rows);
    text.push('\n');
    if !study.has_phase() {
        text.push_str(
            "No iteration was found with confidence: the plan holds placements only. Record more \
             iterations,\nor say where they start with --boundary-op.\n",
        );
        return text;
    }
    text.push_str(&table(study, chosen).render(Style::Plain));
    text.push_str("Predicted for one steady iteration; `*` is written.\n");
    for built in &study.built {
        for note in &built.notes {
            text.push_str(&format!("note: {}: {note}\n", built.policy));
        }
    }
    text
}

fn iterations(study: &Study) -> String {
    let Some(phase) = &study.phase else {
        return "none found".to_owned();
    };
    format!(
        "{} complete, {} alike; {} ops each ({} on the main stream); start by {}, confidence {:.2}",
        phase.iterations.len(),
        phase.matched().count(),
        units::count(u64::from(study.ops_per_iteration)),
        units::count(phase.steady().map_or(0, |steady| u64::from(steady.ops()))),
        phase.evidence.name(),
        phase.confidence,
    )
}

fn table(study: &Study, chosen: &[Policy]) -> Rows {
    let mut rows = Rows::new([
        "policy",
        "migrating faults",
        "HtoD",
        "DtoH",
        "zero-copy",
        "prefetches",
        "peak resident",
        "exposed",
        "iteration",
    ]);
    for built in &study.built {
        let Some(prediction) = &built.prediction else {
            continue;
        };
        let mark = if chosen.contains(&built.policy) {
            " *"
        } else {
            ""
        };
        rows.push([
            format!("{}{mark}", built.policy),
            units::count(prediction.migrating_faults),
            units::bytes(prediction.htod_bytes),
            units::bytes(prediction.dtoh_bytes),
            units::bytes(prediction.zero_copy_bytes),
            units::count(prediction.prefetch_calls),
            units::bytes(prediction.peak_resident_bytes),
            units::duration(float(prediction.exposed_ns)),
            units::duration(float(prediction.iteration_ns)),
        ]);
    }
    rows
}

/// The summary for scripts.
#[must_use]
pub fn json(trace: &Path, study: &Study, paths: &[PathBuf]) -> Value {
    let phase = study.phase.as_ref().map(|phase| {
        json!({
            "iterations": phase.iterations.len(),
            "matched": phase.matched().count(),
            "ops_per_iteration": study.ops_per_iteration,
            "main_stream": phase.main_stream.0,
            "main_ops_per_iteration": phase.steady().map(crate::iterations::Iteration::ops),
            "evidence": phase.evidence.name(),
            "confidence": phase.confidence,
            "confident": phase.is_confident(),
        })
    });
    let capacity = &study.capacity;
    json!({
        "trace": trace.display().to_string(),
        "phase": phase,
        "capacity": {
            "hbm_bytes": capacity.hbm_bytes,
            "unconverted_bytes": capacity.unconverted_bytes,
            "reserve_bytes": capacity.reserve_bytes,
            "managed_bytes": capacity.managed_bytes,
        },
        "touched_bytes": study.touched_bytes,
        "policies": study.built.iter().map(built).collect::<Vec<_>>(),
        "plans": paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
    })
}

fn built(built: &Built) -> Value {
    json!({
        "policy": built.policy.name(),
        "prediction": built.prediction,
        "ops_with_steps": compose::ops_with_steps(&built.plan),
        "prefetch_bytes": compose::step_bytes(&built.plan, Action::PrefetchToDevice),
        "eviction_bytes": compose::step_bytes(&built.plan, Action::EvictToHost),
        "placements": wide(built.plan.placements.len()),
        "notes": built.notes,
    })
}

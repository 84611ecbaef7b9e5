//! The text `inspect` prints for a trace.

use transit_format::trace::model::Header;

use super::trace_facts::{MigrationFacts, TraceFacts};
use crate::render::names;
use crate::render::table::{self, Rows, Style};
use crate::render::units;

/// Longest function name shown in a table.
const NAME_CHARS: usize = 60;

/// The whole text; `top` functions are listed.
#[must_use]
pub fn text(facts: &TraceFacts, top: usize) -> String {
    let mut text = head(facts);
    section(&mut text, "ops by stream", &streams(facts));
    section(&mut text, "iterations", &iterations(facts));
    section(&mut text, "functions", &functions(facts, top));
    section(&mut text, "allocations", &allocations(facts));
    section(&mut text, "migrations", &migrations(&facts.migrations));
    section(&mut text, "faults", &faults(facts));
    section(&mut text, "checks", &checks(facts));
    text
}

fn section(text: &mut String, title: &str, body: &str) {
    if !body.is_empty() {
        text.push_str(&format!("\n{title}\n"));
        for line in body.lines() {
            text.push_str(&format!("  {line}\n"));
        }
    }
}

fn head(facts: &TraceFacts) -> String {
    let header = &facts.header;
    let state = match (&facts.cut_reason, facts.cut_at_offset) {
        (Some(reason), Some(offset)) => {
            format!("cut at offset {offset}: {reason}; all before it is here")
        }
        _ => "closed".to_owned(),
    };
    let mut rows = vec![
        (
            "trace",
            format!("{} ({})", facts.file, units::bytes(facts.file_bytes)),
        ),
        ("state", state),
        ("command", header.command.join(" ")),
        ("recorded", recorded(header)),
        ("device", device(header)),
        ("card", card(header)),
        ("policy", header.replayed_policy.clone().unwrap_or_default()),
        ("duration", units::duration(facts.duration_ns as f64)),
    ];
    let notes: Vec<String> = header
        .notes
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    rows.push(("notes", notes.join("\n")));
    table::facts(&rows)
}

/// `2026-11-29 23:31 UTC on HOST, pid 7, rank 3 (local 1), by transit 0.1.0`.
#[must_use]
pub fn recorded(header: &Header) -> String {
    let mut text = units::date(header.start_unix_s);
    if !header.host.is_empty() {
        text.push_str(&format!(" on {}", header.host));
    }
    text.push_str(&format!(", pid {}", header.pid));
    if let Some(rank) = header.rank {
        text.push_str(&format!(", rank {rank}"));
    }
    if let Some(local) = header.local_rank {
        text.push_str(&format!(" (local {local})"));
    }
    if !header.tool_version.is_empty() {
        text.push_str(&format!(", by transit {}", header.tool_version));
    }
    text
}

fn device(header: &Header) -> String {
    let cupti = match header.cupti_version {
        0 => "no CUPTI (no device times, no migrations)".to_owned(),
        version => format!("CUPTI {version}"),
    };
    format!(
        "{}, {}, driver {}, {cupti}",
        header.device_name,
        units::bytes(header.device_total_bytes),
        units::cuda_version(header.driver_version),
    )
}

/// What card the job saw.
#[must_use]
pub fn card(header: &Header) -> String {
    match header.emulated_card_bytes {
        None => "the device itself".to_owned(),
        Some(0) => "touch maps (emulated card of 0 bytes)".to_owned(),
        Some(bytes) => format!("emulated, {}", units::bytes(bytes)),
    }
}

fn streams(facts: &TraceFacts) -> String {
    let mut rows = Rows::new([
        "stream",
        "kernels",
        "graphs",
        "memsets",
        "memcpys",
        "device time",
    ]);
    let mut shown = false;
    for one in &facts.streams {
        shown = true;
        rows.push([
            one.stream.clone(),
            units::count(one.kernels),
            units::count(one.graphs),
            units::count(one.memsets),
            units::count(one.memcpys),
            units::duration(one.device_ns as f64),
        ]);
    }
    if shown {
        rows.render(Style::Plain)
    } else {
        "none\n".to_owned()
    }
}

fn iterations(facts: &TraceFacts) -> String {
    let windows = &facts.iterations;
    let mut text = match windows.list.len() {
        _ if windows.confidence == 0.0 => format!("none found: {}\n", windows.evidence),
        count => format!(
            "{count} by {}, confidence {:.2}\n",
            windows.evidence, windows.confidence
        ),
    };
    let mut rows = Rows::new(["iteration", "first op", "ops", "duration", "steady"]);
    let many = windows.list.len() > 12;
    for (place, one) in windows.list.iter().enumerate() {
        if many && place >= 6 && place + 3 < windows.list.len() {
            if place == 6 {
                rows.push(["...", "", "", "", ""]);
            }
            continue;
        }
        rows.push([
            place.to_string(),
            units::count(one.first_op as u64),
            units::count(one.ops() as u64),
            units::duration(one.duration_ns() as f64),
            if one.steady { "yes" } else { "no" }.to_owned(),
        ]);
    }
    if !rows.is_empty() {
        text.push_str(&rows.render(Style::Plain));
    }
    text
}

fn functions(facts: &TraceFacts, top: usize) -> String {
    let all: u64 = facts.functions.iter().map(|one| one.device_ns).sum();
    let mut rows = Rows::new(["function", "launches", "device time", "share"]);
    for one in facts.functions.iter().take(top) {
        let share = if all == 0 {
            "-".to_owned()
        } else {
            format!("{:.1} %", 100.0 * one.device_ns as f64 / all as f64)
        };
        rows.push([
            names::short(&one.mangled, NAME_CHARS),
            units::count(one.launches),
            units::duration(one.device_ns as f64),
            share,
        ]);
    }
    if rows.is_empty() {
        return "none\n".to_owned();
    }
    let mut text = rows.render(Style::Plain);
    if facts.functions.len() > top {
        let more = (facts.functions.len() - top) as u64;
        text.push_str(&format!(
            "and {} (--top N shows them)\n",
            units::counted(more, "more", "more")
        ));
    }
    text
}

fn allocations(facts: &TraceFacts) -> String {
    let mut rows = Rows::new(["size", "converted", "not converted", "bytes"]);
    for class in &facts.alloc_classes {
        let size = if class.from_bytes == 0 {
            format!("below {}", units::bytes(class.below_bytes))
        } else {
            format!(
                "{} to {}",
                units::bytes(class.from_bytes),
                units::bytes(class.below_bytes)
            )
        };
        rows.push([
            size,
            units::count(class.converted),
            units::count(class.unconverted),
            units::bytes(class.bytes),
        ]);
    }
    let mut text = if rows.is_empty() {
        String::new()
    } else {
        rows.render(Style::Plain)
    };
    text.push_str(&format!(
        "peak {} converted, {} not converted; {} still held at the end\n",
        units::bytes(facts.totals.converted_peak_bytes),
        units::bytes(facts.totals.unconverted_peak_bytes),
        units::count(facts.live_allocs_at_end),
    ));
    text
}

fn migrations(list: &[MigrationFacts]) -> String {
    if list.is_empty() {
        return "none recorded\n".to_owned();
    }
    let mut rows = Rows::new([
        "direction",
        "cause",
        "count",
        "bytes",
        "mean size",
        "while moving",
    ])
    .text_columns([1]);
    for one in list {
        rows.push([
            one.direction.clone(),
            one.cause.clone(),
            units::count(one.count),
            units::bytes(one.bytes),
            units::bytes(one.bytes / one.count.max(1)),
            units::rate(one.bytes as f64, one.moving_ns as f64),
        ]);
    }
    rows.render(Style::Plain)
}

fn faults(facts: &TraceFacts) -> String {
    if facts.faults.is_empty() {
        return if facts.header.faults_recorded {
            "none\n".to_owned()
        } else {
            "not recorded (transit-record --faults records them)\n".to_owned()
        };
    }
    let mut rows = Rows::new(["kind", "records", "groups or bytes"]);
    for one in &facts.faults {
        let value = if one.kind.starts_with("remote") {
            units::bytes(one.value)
        } else {
            units::count(one.value)
        };
        rows.push([one.kind.to_owned(), units::count(one.records), value]);
    }
    rows.render(Style::Plain)
}

/// Hooks against CUPTI, and where in the trace times are missing.
fn verdict(facts: &TraceFacts) -> String {
    let totals = &facts.totals;
    let Some(check) = &totals.check else {
        return String::new();
    };
    let mut text = format!(
        "{} device records of {}: {}",
        units::count(check.recorded()),
        units::count(check.hooked()),
        check.verdict(&totals.drops)
    );
    let by_iteration = &facts.untimed_by_iteration;
    let bad = by_iteration.iter().filter(|count| **count > 0).count();
    let lost = !check.complete() && totals.unasked_ops == 0;
    if lost && !by_iteration.is_empty() {
        text += &format!(
            "; every op has its record in {} of {} iterations",
            by_iteration.len() - bad,
            by_iteration.len()
        );
    }
    text
}

fn checks(facts: &TraceFacts) -> String {
    let totals = &facts.totals;
    let counted = match facts.self_check {
        _ if totals.check.is_some() => verdict(facts),
        None => "no CUPTI: not checked".to_owned(),
        Some(true) => {
            format!(
                "hooks and CUPTI both saw {} ops",
                units::count(totals.hooked_ops)
            )
        }
        Some(false) => format!(
            "hooks saw {} ops, CUPTI {}: {} {}",
            units::count(totals.hooked_ops),
            units::count(totals.cupti_ops),
            units::count(totals.hooked_ops.abs_diff(totals.cupti_ops)),
            if totals.hooked_ops > totals.cupti_ops {
                "without times"
            } else {
                "not hooked"
            },
        ),
    };
    let drops = &totals.drops;
    let lost = [
        (drops.ops, "ops (ring full)"),
        (drops.cupti, "records dropped by CUPTI"),
        (drops.unplaced, "records outside every allocation"),
        (drops.bad_times, "records with impossible times"),
    ];
    let lost: Vec<String> = lost
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", units::count(*count)))
        .collect();
    let (converted, other) = (totals.converted_peak_bytes, totals.unconverted_peak_bytes);
    let coverage = if converted + other == 0 {
        "no device memory seen".to_owned()
    } else {
        let share = 100.0 * converted as f64 / (converted + other) as f64;
        format!("{share:.1} % of the peak device bytes are managed")
    };
    let timed = match (facts.untimed_ops, totals.sampled()) {
        (0, _) => "of every op".to_owned(),
        (_, Some(note)) => note,
        (none, None) => format!("missing for {}", units::counted(none, "op", "ops")),
    };
    table::facts(&[
        ("self-check", counted),
        ("device times", timed),
        ("coverage", coverage),
        (
            "dropped",
            if lost.is_empty() {
                "nothing".to_owned()
            } else {
                lost.join(", ")
            },
        ),
    ])
}

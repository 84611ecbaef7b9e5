//! What was done, counted on the launch path and told at the end: one line on stderr, and a JSON
//! file where one was asked for.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::follow::Phase;
use crate::follow::core::Counters;

/// Counters of driver calls made for the plan.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Steps issued, in whole or in part.
    pub(crate) steps: AtomicU64,
    /// Bytes asked to come to the device.
    pub(crate) prefetched_bytes: AtomicU64,
    /// Bytes asked to go to the host.
    pub(crate) evicted_bytes: AtomicU64,
    /// Bytes advised.
    pub(crate) advised_bytes: AtomicU64,
    /// Copies outside the plan whose ranges were sent where the copy should find them ...
    pub(crate) prepared: AtomicU64,
    /// ... and the bytes asked for.
    pub(crate) prepared_bytes: AtomicU64,
    /// Driver calls that failed; the job never hears of them.
    pub(crate) errors: AtomicU64,
    /// The last such error's number.
    pub(crate) last_error: AtomicU64,
    /// Ranges left out: unbound or outside the live allocation.
    pub(crate) unresolved: AtomicU64,
    /// Ops not followed because another thread was being served.
    pub(crate) contended: AtomicU64,
    /// Calls not made because a capture was open.
    pub(crate) under_capture: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Everything the exit line and the JSON file say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Plan file.
    pub(crate) plan: String,
    /// Its policy.
    pub(crate) policy: String,
    /// Where the main stream stood.
    pub(crate) phase: Phase,
    /// What the follower counted.
    pub(crate) counters: Counters,
    /// Bytes of the allocations the plan speaks of.
    pub(crate) planned_bytes: u64,
    /// Highest sum of them that were bound at once.
    pub(crate) bound_bytes: u64,
    /// Bindings that use corrected.
    pub(crate) rebound: u64,
    /// Bindings that use did not confirm.
    pub(crate) undone: u64,
    /// Bytes of memory populated when it was made ...
    pub(crate) populated_bytes: u64,
    /// ... and allocations that the driver did not populate.
    pub(crate) populations_refused: u64,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        100.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// Bytes as people read them.
pub(crate) fn human(bytes: u64) -> String {
    let steps = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match steps.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} B"),
    }
}

impl Summary {
    /// The process launched nothing and allocated nothing of the plan's: nothing to tell.
    pub(crate) fn idle(&self) -> bool {
        self.counters.ops == 0 && self.bound_bytes == 0
    }

    /// Ops matched, by name or role, of those since the first iteration was recognised.
    fn matched(&self) -> (u64, u64) {
        let counters = &self.counters;
        (
            counters.by_name + counters.by_role,
            counters.ops_since_start,
        )
    }

    /// The line at exit, without the tool's name.
    pub(crate) fn line(&self, tally: &Tally) -> String {
        let (matched, ops) = self.matched();
        let mut line = format!(
            "{} ({}): {:.1} % of {} planned memory bound, ",
            self.plan,
            self.policy,
            percent(self.bound_bytes, self.planned_bytes),
            human(self.planned_bytes),
        );
        let _ = match self.counters.iterations {
            0 => write!(
                line,
                "no iteration recognised in {} ops, ",
                self.counters.ops
            ),
            _ => write!(
                line,
                "{:.1} % of {ops} ops matched, ",
                percent(matched.min(ops), ops)
            ),
        };
        let _ = write!(
            line,
            "{} steps issued, {} prefetched, {} advised, {} divergences, {}",
            get(&tally.steps),
            human(get(&tally.prefetched_bytes)),
            human(get(&tally.advised_bytes)),
            self.counters.divergences,
            self.phase.name(),
        );
        if get(&tally.evicted_bytes) > 0 {
            let _ = write!(line, ", {} evicted", human(get(&tally.evicted_bytes)));
        }
        if get(&tally.prepared) > 0 {
            let _ = write!(
                line,
                ", {} copies prepared ({})",
                get(&tally.prepared),
                human(get(&tally.prepared_bytes))
            );
        }
        if get(&tally.errors) > 0 {
            let last = get(&tally.last_error);
            let _ = write!(
                line,
                ", {} driver calls failed (last {last})",
                get(&tally.errors)
            );
        }
        line
    }

    /// The same as JSON, with everything else that was counted.
    pub(crate) fn json(&self, tally: &Tally) -> String {
        let (matched, ops) = self.matched();
        let counters = &self.counters;
        let numbers = [
            ("planned_bytes", self.planned_bytes),
            ("bound_bytes", self.bound_bytes),
            ("rebound", self.rebound),
            ("undone", self.undone),
            ("ops", counters.ops),
            ("ops_since_start", ops),
            ("ops_matched", matched),
            ("ops_by_name", counters.by_name),
            ("ops_by_role", counters.by_role),
            ("ops_with_other_pointers", counters.elsewhere),
            ("ops_unfollowed", counters.unfollowed),
            ("ops_contended", get(&tally.contended)),
            ("iterations", counters.iterations),
            ("iterations_completed", counters.completed),
            ("strays", counters.strays),
            ("divergences", counters.divergences),
            ("steps_issued", get(&tally.steps)),
            ("steps_withheld", counters.withheld),
            ("prefetched_bytes", get(&tally.prefetched_bytes)),
            ("evicted_bytes", get(&tally.evicted_bytes)),
            ("advised_bytes", get(&tally.advised_bytes)),
            ("copies_prepared", get(&tally.prepared)),
            ("prepared_bytes", get(&tally.prepared_bytes)),
            ("populated_bytes", self.populated_bytes),
            ("populations_refused", self.populations_refused),
            ("ranges_unresolved", get(&tally.unresolved)),
            ("skipped_under_capture", get(&tally.under_capture)),
            ("driver_errors", get(&tally.errors)),
        ];
        let mut json = format!(
            "{{\n  \"plan\": {},\n  \"policy\": {},\n  \"state\": \"{}\",\n  \
             \"bound_percent\": {:.3},\n  \"ops_matched_percent\": {:.3}",
            quoted(&self.plan),
            quoted(&self.policy),
            self.phase.name(),
            percent(self.bound_bytes, self.planned_bytes),
            if ops == 0 {
                0.0
            } else {
                percent(matched.min(ops), ops)
            },
        );
        for (name, value) in numbers {
            let _ = write!(json, ",\n  \"{name}\": {value}");
        }
        json.push_str("\n}\n");
        json
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            character if character < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            plan: "a \"b\"\n.plan".into(),
            policy: "prefetch".into(),
            phase: Phase::Tracking,
            counters: Counters {
                ops: 120,
                ops_since_start: 100,
                by_name: 97,
                by_role: 2,
                iterations: 3,
                ..Counters::default()
            },
            planned_bytes: 3 << 30,
            bound_bytes: 3 << 29,
            ..Summary::default()
        }
    }

    #[test]
    fn the_line_says_what_was_bound_and_matched() {
        let tally = Tally::default();
        add(&tally.prefetched_bytes, 5 << 20);
        let line = summary().line(&tally);
        for part in [
            "50.0 % of 3.0 GiB",
            "99.0 % of 100 ops",
            "5.0 MiB prefetched",
            "tracking",
        ] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains("failed"));
        add(&tally.errors, 2);
        assert!(summary().line(&tally).contains("2 driver calls failed"));
    }

    #[test]
    fn a_plan_of_another_job_is_said_to_be_one() {
        let mut summary = summary();
        summary.counters.iterations = 0;
        assert!(
            summary
                .line(&Tally::default())
                .contains("no iteration recognised in 120 ops")
        );
    }

    #[test]
    fn the_json_is_json_whatever_the_path() {
        let json = summary().json(&Tally::default());
        assert!(json.contains(r#""plan": "a \"b\"\u000a.plan""#), "{json}");
        assert!(json.contains("\"ops_matched_percent\": 99.000"));
        assert!(json.trim_end().ends_with('}'));
    }
}

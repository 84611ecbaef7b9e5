//! The rows of a report: each a name, a unit and one value per run.

use serde_json::{Map, Value as Json, json};

use super::measure::Run;
use crate::render::units;

/// How a number reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
    /// GB/s.
    Rate,
    /// A ratio in per cent.
    Percent,
}

/// A value of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Not known or not meaningful for this run.
    Unknown,
    /// A number.
    Number(f64),
    /// From the first to the second: step time with eviction at link rate, and as measured;
    /// zero-copy with each touch counted once, and twice.
    Interval(f64, f64),
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Stable name for JSON.
    pub key: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// How its numbers read.
    pub unit: Unit,
    /// One value per run.
    pub values: Vec<Value>,
    /// Whether AFTER / BEFORE says something.
    pub compared: bool,
}

/// A number in its unit.
fn text_of(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Count => units::count(value.round().max(0.0) as u64),
        Unit::Bytes => units::bytes(value.round().max(0.0) as u64),
        Unit::Time => units::duration(value),
        Unit::Rate => units::gb_per_s(value),
        Unit::Percent => format!("{:.0} %", value * 100.0),
    }
}

impl Value {
    /// The value as text.
    #[must_use]
    pub fn text(self, unit: Unit) -> String {
        match self {
            Self::Unknown => "-".to_owned(),
            Self::Number(value) => text_of(unit, value),
            Self::Interval(low, high) => {
                format!("{} .. {}", text_of(unit, low), text_of(unit, high))
            }
        }
    }

    fn ends(self) -> Option<(f64, f64)> {
        match self {
            Self::Unknown => None,
            Self::Number(value) => Some((value, value)),
            Self::Interval(low, high) => Some((low, high)),
        }
    }

    fn json(self) -> Json {
        match self {
            Self::Unknown => Json::Null,
            Self::Number(value) => json!(value),
            Self::Interval(low, high) => json!({"low": low, "high": high}),
        }
    }
}

/// AFTER / BEFORE: like ends are compared, and a plain number counts as both ends.
#[must_use]
pub fn ratio(before: Value, after: Value) -> String {
    let (Some(before), Some(after)) = (before.ends(), after.ends()) else {
        return "-".to_owned();
    };
    let of = |before: f64, after: f64| match (before, after) {
        (b, a) if b > 0.0 => units::ratio(a / b),
        (_, a) if a > 0.0 => "new".to_owned(),
        _ => "=".to_owned(),
    };
    let (low, high) = (of(before.0, after.0), of(before.1, after.1));
    if low == high {
        low
    } else {
        format!("{low} .. {high}")
    }
}

/// All rows of a report.
#[must_use]
pub fn of(runs: &[Run], link_gb_per_s: f64) -> Vec<Row> {
    let mut rows = work(runs, link_gb_per_s);
    rows.extend(movement(runs));
    rows.extend(memory(runs));
    rows
}

/// Makes one row.
fn row(
    runs: &[Run],
    (key, name): (&'static str, &'static str),
    unit: Unit,
    value: impl Fn(&Run) -> Value,
) -> Row {
    Row {
        key,
        name,
        unit,
        values: runs.iter().map(value).collect(),
        compared: true,
    }
}

fn known(known: bool, value: f64) -> Value {
    if known {
        Value::Number(value)
    } else {
        Value::Unknown
    }
}

fn per(part: f64, whole: f64) -> Value {
    known(whole > 0.0, part / whole)
}

/// What the step took and did.
fn work(runs: &[Run], link_gb_per_s: f64) -> Vec<Row> {
    let number = Value::Number;
    vec![
        row(runs, ("step_ns", "step time"), Unit::Time, |run| {
            let measured = run.median.step_ns;
            match run.step_at_link_rate_ns(link_gb_per_s) {
                Some(fast) => Value::Interval(fast, measured),
                None => number(measured),
            }
        }),
        row(runs, ("busy_ns", "device busy"), Unit::Time, |run| {
            known(run.median.busy_ns > 0.0, run.median.busy_ns)
        }),
        row(runs, ("launches", "ops"), Unit::Count, |run| {
            number(run.median.launches)
        }),
        row(
            runs,
            ("fault_groups", "GPU fault groups"),
            Unit::Count,
            |run| known(run.faults_recorded, run.median.fault_groups),
        ),
        row(
            runs,
            ("demand_migrations", "migrations on demand"),
            Unit::Count,
            |run| number(run.median.demand_migrations),
        ),
    ]
}

/// What crossed the link.
fn movement(runs: &[Run]) -> Vec<Row> {
    let bytes = |names, value: fn(&Run) -> Value| row(runs, names, Unit::Bytes, value);
    let rate = |names, value: fn(&Run) -> Value| row(runs, names, Unit::Rate, value);
    vec![
        bytes(("htod_bytes", "HtoD"), |run| {
            Value::Number(run.median.htod_bytes)
        }),
        bytes(("dtoh_bytes", "DtoH"), |run| {
            Value::Number(run.median.dtoh_bytes)
        }),
        bytes(("zero_copy_bytes", "zero-copy (estimated)"), zero_copy),
        bytes(("link_bytes", "over the link, all"), link_bytes),
        bytes(("htod_mean_bytes", "mean HtoD size"), |run| {
            per(run.median.htod_bytes, run.median.htod)
        }),
        bytes(("dtoh_mean_bytes", "mean DtoH size"), |run| {
            per(run.median.dtoh_bytes, run.median.dtoh)
        }),
        rate(("htod_gb_per_s", "HtoD while moving"), |run| {
            per(run.median.htod_bytes, run.median.htod_ns)
        }),
        rate(("dtoh_gb_per_s", "DtoH while moving"), |run| {
            per(run.median.dtoh_bytes, run.median.dtoh_ns)
        }),
        rate(("link_gb_per_s", "link over the step"), |run| {
            link_rate(run)
        }),
    ]
}

/// What the memory held, over the whole run.
fn memory(runs: &[Run]) -> Vec<Row> {
    let number = |value: u64| Value::Number(value as f64);
    let mut rows = vec![
        row(
            runs,
            ("peak_resident_bytes", "peak resident"),
            Unit::Bytes,
            |run| number(run.peak_resident_bytes),
        ),
        row(runs, ("capacity_bytes", "capacity"), Unit::Bytes, |run| {
            number(run.capacity_bytes)
        }),
        row(
            runs,
            ("peak_allocated_bytes", "peak allocated"),
            Unit::Bytes,
            |run| number(run.peak_allocated_bytes),
        ),
        row(
            runs,
            ("oversubscription", "oversubscription"),
            Unit::Percent,
            |run| per(run.peak_allocated_bytes as f64, run.capacity_bytes as f64),
        ),
    ];
    for row in &mut rows {
        row.compared = false;
    }
    rows
}

/// A touch moves its bytes once if it only reads or only writes, twice if it does both.
fn zero_copy(run: &Run) -> Value {
    interval(run.median.zero_copy_bytes, 2.0 * run.median.zero_copy_bytes)
}

fn link_bytes(run: &Run) -> Value {
    let moved = run.median.htod_bytes + run.median.dtoh_bytes;
    let touched = run.median.zero_copy_bytes;
    interval(moved + touched, moved + 2.0 * touched)
}

fn link_rate(run: &Run) -> Value {
    let step_ns = run.median.step_ns;
    match link_bytes(run).ends() {
        Some((low, high)) if step_ns > 0.0 => interval(low / step_ns, high / step_ns),
        _ => Value::Unknown,
    }
}

fn interval(low: f64, high: f64) -> Value {
    if low < high {
        Value::Interval(low, high)
    } else {
        Value::Number(low)
    }
}

/// The report as JSON: per run its facts and values, in plain units (bytes, nanoseconds, GB/s).
#[must_use]
pub fn json(runs: &[Run], rows: &[Row], notes: &[String]) -> Json {
    let list: Vec<Json> = runs
        .iter()
        .enumerate()
        .map(|(place, run)| {
            let values: Map<String, Json> = rows
                .iter()
                .map(|row| {
                    let value = row.values.get(place).copied().unwrap_or(Value::Unknown);
                    (row.key.to_owned(), value.json())
                })
                .collect();
            json!({
                "label": run.label,
                "files": run.files,
                "policy": run.policy,
                "iterations": run.iterations,
                "steady": run.steady,
                "confidence": run.confidence,
                "emulated": run.emulated,
                "peak_is_exact": run.peak_is_exact,
                "dropped": run.dropped,
                "ops_without_device_time": run.untimed_ops,
                "median": values,
            })
        })
        .collect();
    json!({"kind": "report", "runs": list, "notes": notes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_compare_like_with_like() {
        let number = Value::Number;
        assert_eq!(ratio(number(100.0), number(3.0)), "0.03x");
        assert_eq!(ratio(number(0.0), number(3.0)), "new");
        assert_eq!(ratio(number(0.0), number(0.0)), "=");
        assert_eq!(ratio(Value::Unknown, number(3.0)), "-");
        assert_eq!(
            ratio(Value::Interval(50.0, 100.0), number(25.0)),
            "0.50x .. 0.25x"
        );
    }

    #[test]
    fn values_read_in_their_unit() {
        assert_eq!(
            Value::Interval(950e6, 1_960e6).text(Unit::Time),
            "950 ms .. 1.96 s"
        );
        assert_eq!(Value::Number(1.41).text(Unit::Percent), "141 %");
        assert_eq!(Value::Unknown.text(Unit::Bytes), "-");
    }
}

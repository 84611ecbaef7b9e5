//! One row: fields to a job, or why not.

use std::borrow::Cow;

use csv::ByteRecord;
use jiff::tz::TimeZone;

use super::columns::{Columns, Role};
use super::time::{self, Time};
use crate::trace::State;

/// A row that makes sense.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// The job's name.
    pub name: Cow<'a, str>,
    /// Its type.
    pub kind: Cow<'a, str>,
    /// How it ended.
    pub state: State,
    /// GPUs, perhaps none.
    pub gpus: u32,
    /// Nodes, 0 if unknown.
    pub nodes: u32,
    /// Submission in milliseconds since the table's zero.
    pub submit_ms: u64,
    /// Run time.
    pub run_ms: u64,
    /// The table's duration is the run time plus the queue.
    pub duration_with_queue: bool,
    /// It started before it was submitted.
    pub early: bool,
}

/// Why a row is no job.
#[derive(Debug)]
pub enum Bad {
    /// Nothing is wrong with it: it is no job that ran.
    Skip(&'static str),
    /// It is wrong.
    Wrong {
        /// Place of the column.
        column: usize,
        /// The kind of fault, under which it is counted.
        why: &'static str,
        /// What exactly.
        what: String,
    },
}

/// Reads rows of one table.
pub struct Rows<'a> {
    columns: &'a Columns,
    zone: &'a TimeZone,
}

impl<'a> Rows<'a> {
    /// For a table with these columns.
    #[must_use]
    pub fn new(columns: &'a Columns, zone: &'a TimeZone) -> Self {
        Self { columns, zone }
    }

    /// Reads a row.
    ///
    /// # Errors
    /// Why it is no job.
    pub fn parse<'r>(&mut self, record: &'r ByteRecord) -> Result<Parsed<'r>, Bad> {
        let expected = self.columns.count();
        if record.len() != expected {
            return Err(wrong(
                record.len().min(expected),
                "wrong number of fields",
                format!("{} fields where the heading has {expected}", record.len()),
            ));
        }
        let name = self.text(record, Role::Name)?;
        if self.columns.place(Role::Tres).is_some() && name.contains('.') {
            return Err(Bad::Skip("Slurm job steps"));
        }
        let state = State::parse(&self.text(record, Role::State)?);
        let gpus = self.gpus(record)?;
        let nodes = self.number(record, Role::Nodes)?.unwrap_or(0);
        let submit_ms = match self.time(record, Role::Submit)? {
            Some(at) => at,
            None => {
                return Err(self.wrong(Role::Submit, "no time", "no time of submission".into()));
            }
        };
        let start_ms = self.time(record, Role::Start)?;
        let end_ms = self.time(record, Role::End)?;
        let run_ms = self.run(record, state, start_ms, end_ms)?;
        let duration = self
            .text(record, Role::Duration)?
            .trim()
            .parse::<f64>()
            .ok();
        let queued = end_ms.map(|end| end.saturating_sub(submit_ms));
        let of = |ms: u64| duration.is_some_and(|s| (s * 1000.0 - ms as f64).abs() < 1.0);
        Ok(Parsed {
            name,
            kind: self.text(record, Role::Kind)?,
            state,
            gpus,
            nodes,
            submit_ms,
            run_ms,
            duration_with_queue: queued.is_some_and(of) && !of(run_ms),
            early: start_ms.is_some_and(|start| start < submit_ms),
        })
    }

    fn wrong(&self, role: Role, why: &'static str, what: String) -> Bad {
        wrong(self.columns.place(role).unwrap_or(0), why, what)
    }

    fn text<'r>(&self, record: &'r ByteRecord, role: Role) -> Result<Cow<'r, str>, Bad> {
        let Some(place) = self.columns.place(role) else {
            return Ok(Cow::Borrowed(""));
        };
        let bytes = record.get(place).unwrap_or(&[]);
        if bytes.contains(&0) {
            return Err(wrong(place, "NUL bytes", "a NUL byte in the field".into()));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text.trim())),
            // A name in another encoding is still a name.
            Err(_) if matches!(role, Role::Name | Role::Kind) => Ok(String::from_utf8_lossy(bytes)),
            Err(_) => Err(wrong(place, "not UTF-8", "bytes that are no UTF-8".into())),
        }
    }

    fn number(&self, record: &ByteRecord, role: Role) -> Result<Option<u32>, Bad> {
        let text = self.text(record, role)?;
        if text.is_empty() {
            return Ok(None);
        }
        let value = text.parse::<f64>().ok().filter(|v| v.fract() == 0.0);
        match value {
            Some(v) if v < 0.0 => Err(self.wrong(
                role,
                "negative numbers",
                format!("{} is negative", shown(&text)),
            )),
            Some(v) if v <= MAX_COUNT => Ok(Some(v as u32)),
            _ => {
                let what = format!("{} is no whole number up to {MAX_COUNT}", shown(&text));
                Err(self.wrong(role, "not a number", what))
            }
        }
    }

    fn gpus(&self, record: &ByteRecord) -> Result<u32, Bad> {
        if self.columns.place(Role::Gpus).is_some() {
            return Ok(self.number(record, Role::Gpus)?.unwrap_or(0));
        }
        let text = self.text(record, Role::Tres)?;
        tres_gpus(&text).ok_or_else(|| {
            let what = format!("no number of GPUs in {}", shown(&text));
            self.wrong(Role::Tres, "not a number", what)
        })
    }

    fn time(&self, record: &ByteRecord, role: Role) -> Result<Option<u64>, Bad> {
        let text = self.text(record, role)?;
        self.known(role, &text, time::parse(&text, self.zone))
    }

    /// The milliseconds that a field was found to say, if any.
    fn known(&self, role: Role, text: &str, time: Time) -> Result<Option<u64>, Bad> {
        match time {
            Time::At(ms) => Ok(Some(ms)),
            Time::None => Ok(None),
            Time::Negative => Err(self.wrong(
                role,
                "negative times",
                format!("{} is negative", shown(text)),
            )),
            Time::Unreadable => {
                let what = format!("{} is no {}", shown(text), role.kind_of_time());
                Err(self.wrong(role, "not a time", what))
            }
        }
    }

    fn run(
        &self,
        record: &ByteRecord,
        state: State,
        start_ms: Option<u64>,
        end_ms: Option<u64>,
    ) -> Result<u64, Bad> {
        if state == State::Running {
            return Err(Bad::Skip("still running or pending"));
        }
        if let (Some(start), Some(end)) = (start_ms, end_ms)
            && end < start
        {
            let what = format!(
                "it ends {:.0} s before it starts",
                (start - end) as f64 / 1000.0
            );
            return Err(self.wrong(Role::End, "end before start", what));
        }
        if start_ms.is_none() && self.columns.place(Role::Start).is_some() {
            return Err(Bad::Skip("never started"));
        }
        let (role, run_ms) = self.run_time(record, start_ms, end_ms)?;
        if run_ms > MAX_RUN_MS {
            let what = format!("it ran {:.0} years", run_ms as f64 / YEAR_MS);
            return Err(self.wrong(role, "longer than ten years", what));
        }
        Ok(run_ms)
    }

    /// How long it ran, and which column says so.
    fn run_time(
        &self,
        record: &ByteRecord,
        start_ms: Option<u64>,
        end_ms: Option<u64>,
    ) -> Result<(Role, u64), Bad> {
        let text = self.text(record, Role::RunSeconds)?;
        if let Some(ms) = self.known(Role::RunSeconds, &text, time::seconds(&text))? {
            return Ok((Role::RunSeconds, ms));
        }
        let text = self.text(record, Role::Elapsed)?;
        if !text.is_empty() {
            let time = time::elapsed(&text).map_or(Time::Unreadable, Time::At);
            let ms = self.known(Role::Elapsed, &text, time)?;
            return Ok((Role::Elapsed, ms.unwrap_or(0)));
        }
        match (start_ms, end_ms) {
            (Some(start), Some(end)) => Ok((Role::End, end - start)),
            (None, _) => Err(Bad::Skip("no run time")),
            (_, None) => Err(Bad::Skip("no end")),
        }
    }
}

const YEAR_MS: f64 = 365.25 * 86_400_000.0;
/// No job runs for ten years: a time is wrong, or in another unit.
const MAX_RUN_MS: u64 = (10.0 * YEAR_MS) as u64;
/// GPUs or nodes of one job; more is a mistake in the table.
const MAX_COUNT: f64 = 10_000_000.0;

fn wrong(column: usize, why: &'static str, what: String) -> Bad {
    Bad::Wrong { column, why, what }
}

/// A field as messages show it: printable and short.
fn shown(text: &str) -> String {
    let mut clean: String = text.chars().filter(|c| !c.is_control()).take(41).collect();
    if clean.chars().count() > 40 {
        clean.pop();
        clean.push_str("...");
    }
    format!("'{clean}'")
}

/// GPUs in a list like `cpu=64,gres/gpu=8,gres/gpu:a100=8,node=1`: the plain entry, or else the sum of
/// the typed ones; also `gpu:8` and `gpu:a100:8` as `AllocGRES` had it. None of them: no GPU.
fn tres_gpus(text: &str) -> Option<u32> {
    let (mut plain, mut typed) = (None, 0_u32);
    for item in text.split(',') {
        let (name, count) = match item.rsplit_once('=') {
            Some(pair) => pair,
            None => item.rsplit_once(':').unwrap_or((item, "")),
        };
        let name = name.strip_prefix("gres/").unwrap_or(name).trim();
        if name == "gpu" {
            plain = Some(count.parse().ok()?);
        } else if name.starts_with("gpu:") {
            typed = typed.checked_add(count.parse().ok()?)?;
        }
    }
    Some(plain.unwrap_or(typed)).filter(|&gpus| f64::from(gpus) <= MAX_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_found_in_slurm_resources() {
        assert_eq!(
            tres_gpus("billing=8,cpu=64,gres/gpu=8,gres/gpu:a100=8,node=1"),
            Some(8)
        );
        assert_eq!(tres_gpus("gres/gpu:a100=4,gres/gpu:v100=2"), Some(6));
        assert_eq!(tres_gpus("gpu:a100:4"), Some(4));
        assert_eq!(tres_gpus("gpu:8"), Some(8));
        assert_eq!(tres_gpus("cpu=1,mem=4G"), Some(0));
        assert_eq!(tres_gpus(""), Some(0));
        assert_eq!(tres_gpus("gres/gpu=many"), None);
    }
}

//! Which jobs are simulated. The paper keeps "meaningful GPU jobs" and does not say which those are;
//! here every choice is an option and every job left out is counted under the option that did it.

use clap::ValueEnum;
use serde::Serialize;

use super::row::Parsed;
use crate::trace::{Job, State, Trace};

/// Conditions that a job must meet.
#[derive(Clone, Debug, Default, clap::Args, Serialize)]
pub struct Filter {
    /// Only jobs that ended so (several with commas).
    #[arg(long, value_enum, value_delimiter = ',', help_heading = "Which jobs")]
    pub states: Vec<State>,
    /// Only jobs of these types (several with commas).
    #[arg(long, value_delimiter = ',', help_heading = "Which jobs")]
    pub types: Vec<String>,
    /// Only jobs of at least so many GPUs.
    #[arg(long, default_value_t = 1, help_heading = "Which jobs")]
    pub min_gpus: u32,
    /// Only jobs of at most so many GPUs; 0 for no limit.
    #[arg(long, default_value_t = 0, help_heading = "Which jobs")]
    pub max_gpus: u32,
    /// Only jobs that ran at least so many seconds.
    #[arg(long, default_value_t = 1.0, help_heading = "Which jobs")]
    pub min_run_s: f64,
    /// Only the first so many days; 0 for all.
    #[arg(long, default_value_t = 0.0, help_heading = "Which jobs")]
    pub days: f64,
}

impl Filter {
    /// Conditions that mean nothing.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn possible(&self) -> Result<(), String> {
        for (name, value) in [("min-run-s", self.min_run_s), ("days", self.days)] {
            if !(0.0..=1e9).contains(&value) {
                return Err(format!("--{name} {value} is not within 0 and 1000000000"));
            }
        }
        if self.max_gpus > 0 && self.max_gpus < self.min_gpus {
            return Err("--max-gpus is below --min-gpus, which no job meets".to_owned());
        }
        Ok(())
    }

    /// Why a row is left out, if it is. Days are counted once the first submission is known.
    #[must_use]
    pub fn refuses(&self, row: &Parsed<'_>) -> Option<&'static str> {
        self.check(row.gpus, row.run_ms, row.state, &row.kind)
    }

    fn check(&self, gpus: u32, run_ms: u64, state: State, kind: &str) -> Option<&'static str> {
        if gpus == 0 {
            return Some("no GPU");
        }
        if (run_ms as f64) < self.min_run_s * 1000.0 || run_ms == 0 {
            return Some("--min-run-s");
        }
        if gpus < self.min_gpus {
            return Some("--min-gpus");
        }
        if self.max_gpus > 0 && gpus > self.max_gpus {
            return Some("--max-gpus");
        }
        if !self.states.is_empty() && !self.states.contains(&state) {
            return Some("--states");
        }
        let known = |wanted: &String| wanted.eq_ignore_ascii_case(kind);
        if !self.types.is_empty() && !self.types.iter().any(known) {
            return Some("--types");
        }
        None
    }

    /// Whether every job of a trace meets the conditions, so that it need not be copied.
    #[must_use]
    pub fn keeps_all(&self, trace: &Trace) -> bool {
        trace
            .jobs
            .iter()
            .all(|job| self.refuses_job(job, trace).is_none())
    }

    /// The jobs of a trace that meet the conditions; `left_out` hears why others do not.
    #[must_use]
    pub fn apply(&self, trace: &Trace, mut left_out: impl FnMut(&'static str)) -> Trace {
        let mut kept = Trace {
            kinds: trace.kinds.clone(),
            ..Trace::default()
        };
        for (at, job) in trace.jobs.iter().enumerate() {
            match self.refuses_job(job, trace) {
                Some(why) => left_out(why),
                None => {
                    kept.jobs.push(*job);
                    kept.names.push(trace.names.get(at));
                }
            }
        }
        kept.settle();
        kept
    }

    fn refuses_job(&self, job: &Job, trace: &Trace) -> Option<&'static str> {
        let late = self.days > 0.0 && job.submit.seconds() >= self.days * 86_400.0;
        let why = self.check(job.gpus, job.run.0, job.state, trace.kind_of(job));
        why.or(late.then_some("--days"))
    }

    /// The conditions in words.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = vec![format!("at least {} GPU", self.min_gpus.max(1))];
        if self.max_gpus > 0 {
            words.push(format!("at most {} GPUs", self.max_gpus));
        }
        words.push(format!("ran {} s or longer", self.min_run_s));
        if !self.states.is_empty() {
            let names = self.states.iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
            words.push(names.join(" or "));
        }
        if !self.types.is_empty() {
            words.push(format!("of type {}", self.types.join(" or ")));
        }
        if self.days > 0.0 {
            words.push(format!("within the first {} days", self.days));
        }
        words.join(", ")
    }
}

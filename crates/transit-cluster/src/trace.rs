//! The jobs that are simulated: what every input format and the generator turn into.

use std::collections::HashMap;

use serde::Serialize;

use crate::units::Millis;

/// How a job ended, as far as the trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It finished.
    Completed,
    /// Somebody stopped it.
    Cancelled,
    /// It or its node failed (also out of memory).
    Failed,
    /// It ran into its time limit.
    Timeout,
    /// It was preempted.
    Preempted,
    /// It still ran when the trace was taken; how long it would have run is not known, so none is simulated.
    #[value(skip)]
    Running,
    /// The trace does not say, or says something unknown.
    Unknown,
}

impl State {
    /// The state a trace's word means; Slurm adds ` by UID` to cancelled jobs.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        let first = word.split([' ', '+']).next().unwrap_or("");
        match first.to_ascii_uppercase().as_str() {
            "COMPLETED" | "COMPLETING" => Self::Completed,
            "CANCELLED" | "REVOKED" => Self::Cancelled,
            "FAILED" | "NODE_FAIL" | "OUT_OF_MEMORY" | "BOOT_FAIL" => Self::Failed,
            "TIMEOUT" | "DEADLINE" => Self::Timeout,
            "PREEMPTED" | "REQUEUED" => Self::Preempted,
            "RUNNING" | "SUSPENDED" | "PENDING" => Self::Running,
            _ => Self::Unknown,
        }
    }
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// When it was submitted, from the trace's first submission on.
    pub submit: Millis,
    /// How long it held its GPUs, at least one millisecond.
    pub run: Millis,
    /// GPUs asked for, at least one.
    pub gpus: u32,
    /// Nodes as the trace tells them, 0 where it does not.
    pub nodes: u32,
    /// How it ended.
    pub state: State,
    /// Its type: a place in [`Trace::kinds`].
    pub kind: u16,
}

/// Jobs in the order in which a scheduler sees them.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// By submission, then in the order of their rows.
    pub jobs: Vec<Job>,
    /// Their names, in the same order.
    pub names: Names,
    /// Words for types of jobs.
    pub kinds: Kinds,
}

impl Trace {
    /// Sorts by submission, keeps the order of rows within one moment, and moves the first
    /// submission to time 0. Returns that moment.
    pub fn settle(&mut self) -> Millis {
        let first = self.jobs.iter().map(|job| job.submit).min();
        let first = first.unwrap_or_default();
        let mut order: Vec<u32> = (0..self.jobs.len() as u32).collect();
        let submit = |at: &u32| self.jobs.get(*at as usize).map(|job| job.submit);
        if !order.is_sorted_by_key(submit) {
            order.sort_by_key(submit);
            let sorted = order.iter().filter_map(|&at| self.jobs.get(at as usize));
            self.jobs = sorted.copied().collect();
            self.names = self.names.in_order(&order);
        }
        for job in &mut self.jobs {
            job.submit = job.submit.since(first);
        }
        first
    }

    /// GPU-milliseconds that the jobs ask for.
    #[must_use]
    pub fn work(&self) -> u128 {
        let work = |job: &Job| u128::from(job.run.0) * u128::from(job.gpus);
        self.jobs.iter().map(work).sum()
    }

    /// From the first submission to the last.
    #[must_use]
    pub fn span(&self) -> Millis {
        self.jobs.last().map_or(Millis(0), |job| job.submit)
    }

    /// The word for a job's type.
    #[must_use]
    pub fn kind_of(&self, job: &Job) -> &str {
        self.kinds.word(job.kind)
    }
}

/// Names of jobs, one after the other in one string: ten million names cost their letters and four bytes.
#[derive(Clone, Debug, Default)]
pub struct Names {
    text: String,
    ends: Vec<u32>,
}

/// Names longer than this are cut: they are for people to find a row again.
const MAX_NAME_BYTES: usize = 40;

impl Names {
    /// Adds a name.
    pub fn push(&mut self, name: &str) {
        let mut end = name.len().min(MAX_NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        // Beyond 4 GiB of names the rest stay nameless.
        let room = self.text.len() + end < u32::MAX as usize;
        self.text
            .push_str(name.get(..end).filter(|_| room).unwrap_or(""));
        self.ends.push(self.text.len() as u32);
    }

    /// The name of the job at this place.
    #[must_use]
    pub fn get(&self, at: usize) -> &str {
        let start = match at.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let end = self.ends.get(at).copied().unwrap_or(start);
        self.text.get(start as usize..end as usize).unwrap_or("")
    }

    fn in_order(&self, order: &[u32]) -> Self {
        let mut sorted = Self {
            text: String::with_capacity(self.text.len()),
            ends: Vec::with_capacity(self.ends.len()),
        };
        for &at in order {
            sorted.push(self.get(at as usize));
        }
        sorted
    }
}

/// Words for types of jobs, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    words: Vec<String>,
    places: HashMap<String, u16>,
}

/// Further types count as `(other types)`: a column of free text is no type.
const MAX_KINDS: usize = 1000;

impl Kinds {
    /// The place of a word, which is added if new.
    pub fn place(&mut self, word: &str) -> u16 {
        if let Some(&place) = self.places.get(word) {
            return place;
        }
        let full = self.words.len() >= MAX_KINDS;
        if full && word != "(other types)" {
            return self.place("(other types)");
        }
        let place = self.words.len() as u16;
        self.words.push(word.to_owned());
        self.places.insert(word.to_owned(), place);
        place
    }

    /// The word at a place.
    #[must_use]
    pub fn word(&self, place: u16) -> &str {
        self.words
            .get(usize::from(place))
            .map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_sorted_by_submission_and_rows_keep_their_order() {
        let mut trace = Trace::default();
        for (name, submit) in [("late", 9), ("b", 5), ("a", 5)] {
            let kind = trace.kinds.place("x");
            trace.names.push(name);
            trace.jobs.push(Job {
                submit: Millis(submit),
                run: Millis(1),
                gpus: 1,
                nodes: 0,
                state: State::Completed,
                kind,
            });
        }
        assert_eq!(trace.settle(), Millis(5));
        let names: Vec<&str> = (0..3).map(|at| trace.names.get(at)).collect();
        assert_eq!(names, ["b", "a", "late"]);
        assert_eq!(trace.span(), Millis(4));
    }

    #[test]
    fn long_names_are_cut_at_a_letter_and_types_do_not_grow_without_bound() {
        let mut names = Names::default();
        names.push(&"é".repeat(30));
        names.push("next");
        assert_eq!(
            (names.get(0).len(), names.get(1), names.get(7)),
            (40, "next", "")
        );
        let mut kinds = Kinds::default();
        for number in 0..3000 {
            kinds.place(&number.to_string());
        }
        let new = kinds.place("new");
        assert_eq!(kinds.word(new), "(other types)");
    }

    #[test]
    fn slurm_states_are_understood() {
        assert_eq!(State::parse("CANCELLED by 1000"), State::Cancelled);
        assert_eq!(State::parse("OUT_OF_MEMORY"), State::Failed);
        assert_eq!(State::parse("completed"), State::Completed);
        assert_eq!(State::parse("???"), State::Unknown);
    }
}

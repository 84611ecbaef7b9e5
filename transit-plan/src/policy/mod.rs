//! Policies: what a plan does before which op. Each is simulated over repeated steady iterations on
//! a card ruled as the driver rules it, until the card's state repeats; the steps of that last
//! iteration are the plan's, and its counts are the prediction.

mod advise;
mod base;
mod farthest;
mod fixpoint;
mod prefetch;
mod walk;

use std::fmt;
use std::str::FromStr;

use transit_format::plan::model::Action;

use crate::ranges::Span;
use crate::space::Space;
use crate::touch::Touches;
use crate::unrolled::Unrolled;

/// Rounds after which a state that has not repeated is taken as it is.
pub const ROUNDS: usize = 8;

/// A policy as the paper names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// What the driver does by itself.
    Base,
    /// Migrations of each op, merged, before it.
    Prefetch,
    /// Zero-copy access to whatever is on the host at the iteration's midpoint.
    Advise,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Base, Self::Prefetch, Self::Advise];

    /// Its name on the command line and in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Prefetch => "prefetch",
            Self::Advise => "advise",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| format!("there is no policy {text:?}: base, prefetch, advise or auto"))
    }
}

/// What policies work on.
pub struct Inputs<'a> {
    /// The steady iteration.
    pub unrolled: &'a Unrolled,
    /// Chunk numbers.
    pub space: &'a Space,
    /// Touches and migrations per op.
    pub touches: &'a Touches,
    /// Chunks freed before an op of the iteration, by its place, sorted.
    pub freed: &'a [(usize, u32)],
    /// Chunks that fit.
    pub capacity_chunks: u32,
    /// Chunks that fit if nothing is kept in reserve: what a real card may turn out to hold.
    pub card_chunks: u32,
    /// Ranges this far apart are prefetched as one.
    pub gap_bytes: u64,
    /// Whether the plan must keep within the card itself.
    pub emulate: bool,
    /// Bytes that an iteration of the recording moved to the card, on average, if the recording is
    /// of Base on the card planned for.
    pub recorded_bytes: Option<u64>,
    /// Whether prefetches are the recorded migrations only, as in the paper.
    pub paper_literal: bool,
}

/// Something to do before the op at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The op's place in [`Unrolled::ops`].
    pub place: usize,
    /// What to do.
    pub action: Action,
    /// On what, in order.
    pub spans: Vec<Span>,
}

/// What one steady iteration does, by the simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that migrate in on faults.
    pub demand_bytes: u64,
    /// Bytes that prefetches move in.
    pub prefetch_bytes: u64,
    /// Bytes of prefetch requests that were on the card already.
    pub refreshed_bytes: u64,
    /// Prefetch requests.
    pub prefetch_calls: u64,
    /// Bytes evicted to the host.
    pub evicted_bytes: u64,
    /// Bytes read or written in place on the host.
    pub zero_copy_bytes: u64,
    /// Most chunks on the card at once.
    pub peak_chunks: u32,
}

/// A policy's plan and prediction.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Steps in order of place; order within a place is kept.
    pub deeds: Vec<Deed>,
    /// Whether the plan makes room itself.
    pub plans_evictions: bool,
    /// Chunks on the card at the start of the iteration (with `emulate`).
    pub start_resident: Vec<u32>,
    /// Counts of the last simulated iteration.
    pub counts: Counts,
    /// Ordinal of the main stream at which advice is given.
    pub midpoint: Option<u32>,
    /// Whether the card's state repeated.
    pub converged: bool,
    /// Things a reader should know.
    pub notes: Vec<String>,
}

/// Makes a policy's plan; `cost_ns` is what an iteration of an outcome should take.
#[must_use]
pub fn plan(policy: Policy, inputs: &Inputs<'_>, cost_ns: impl Fn(&Outcome) -> u64) -> Outcome {
    match policy {
        Policy::Base => base::plan(inputs),
        Policy::Prefetch => prefetch::plan(inputs, cost_ns),
        Policy::Advise => advise::plan(inputs),
    }
}

//! The pure plan follower: it is told what the job does, op by op, and says which of the plan's
//! steps belong to the op about to be issued. No driver, no thread, no clock, so that every
//! decision can be tested on invented programs.
//!
//! ```text
//! hooks ── OpCall ──▶ Follower::op ──▶ Verdict { steps, marks }
//!                       │  main stream: prologue ▶ tracking ⇄ diverged ▶ lost
//!                       │  other streams: aligned by their own op sequences
//!                       └─ votes ──▶ Ledger (allocation bindings confirmed by use)
//! ```
//!
//! On the launch path nothing here allocates, locks, formats or waits: all memory is reserved
//! from the plan when the follower is made.

pub(crate) mod anchor;
pub(crate) mod bind;
pub(crate) mod core;
pub(crate) mod landmarks;
pub(crate) mod lane;
pub(crate) mod ledger;
pub(crate) mod matching;
pub(crate) mod resync;
pub(crate) mod script;
pub(crate) mod side;
pub(crate) mod stretch;
pub(crate) mod votes;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::core::{Follower, Phase, Verdict};

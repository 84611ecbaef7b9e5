//! Capturing what a job does: a CUPTI session, one ring per launching thread, a writer thread that
//! puts a trace together, and the loop that imposes an emulated card. Both shims use it; it knows
//! nothing of plans.
//!
//! # Use
//! A shim holds one `static CAPTURE: Capture = Capture::new()`, calls [`Capture::start`] from its
//! observer's `started`, and passes every observer call on to the method of the same name. Where a
//! card is emulated it calls [`Capture::settle`] at the end of `after_op`, whenever it wants the
//! live loop to govern the card (the recorder: always; a replayer: while it is not tracking).
//! [`Capture::finish`] belongs into `closing`.
//!
//! # The window
//! Ops are recorded from op `skip_ops` on, until the file has `max_bytes` or the window holds
//! `iterations` whole iterations after the first. Iterations are estimated: the median of how often
//! each distinct op (function, shape, pointers) has come, among kernels named after an optimizer
//! if there are any. When the window closes, the last ops get their times, CUPTI is stopped, the
//! file is finished and the job runs on with nothing but the hooks' own cost. Allocations are
//! recorded from the process' first on, whatever the window.
//!
//! # Threads
//! On the job's threads `before_op` and `after_op` take no lock and allocate nothing, except at a
//! thread's first op and at the op that opens the window. All else is the writer thread's work.

mod arrivals;
mod assemble;
mod balance;
mod capture;
mod clock;
mod collect;
mod config;
mod cupti;
mod file;
mod iterations;
mod matcher;
mod order;
mod paging;
mod places;
mod ring;
mod sampling;
mod settle;
mod size_limit;
mod start;
mod told;
mod wire;
mod writer;

pub use capture::Capture;
pub use config::Config;
pub use cupti::{CuptiCheck, check_cupti, follow_calls};
pub use settle::SettleCounts;
pub use size_limit::without_size_signal;
pub use writer::Outcome;

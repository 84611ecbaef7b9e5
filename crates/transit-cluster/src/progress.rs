//! Says on a terminal how far a long command is; shows up only once it takes longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr that goes away when done.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
}

impl Progress {
    /// For so many steps; `what` stands before the bar.
    #[must_use]
    pub fn new(what: &str, steps: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
        let template = "{prefix} {wide_bar} {pos}/{len} ({elapsed}, {eta} left)";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        Self {
            bar,
            since: Instant::now(),
        }
    }

    /// For reading, whose end is not known: counts in millions of rows.
    #[must_use]
    pub fn rows() -> Self {
        let progress = Self::new("reading", 0);
        if let Ok(style) = ProgressStyle::with_template("{spinner} reading: {pos} rows ({elapsed})")
        {
            progress.bar.set_style(style);
        }
        progress
    }

    /// So many steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        if self.since.elapsed() >= Duration::from_secs(1) && self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

//! Says on a terminal what is being done, once it takes longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that appears late and goes away when done.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
}

impl Progress {
    /// Starts; `what` stands before what is being done.
    #[must_use]
    pub fn new(what: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        Self {
            bar,
            since: Instant::now(),
        }
    }

    /// What is being done from now on.
    pub fn say(&self, doing: &'static str) {
        self.bar.set_message(doing);
        if self.since.elapsed() >= Duration::from_secs(1) && self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    /// Takes the line away.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}

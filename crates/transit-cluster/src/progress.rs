//! Says on a terminal how far a long command is; shows up only once it takes longer than a second.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr that goes away when done. A thread of its own shows it, so that it moves on however
/// long one step takes.
pub struct Progress {
    bar: ProgressBar,
    done: Option<(Sender<()>, JoinHandle<()>)>,
}

const BEFORE: Duration = Duration::from_secs(1);
const EACH: Duration = Duration::from_millis(200);

impl Progress {
    /// For so many steps; `what` stands before the bar.
    #[must_use]
    pub fn new(what: &str, steps: u64) -> Self {
        let template = "{prefix} {wide_bar} {percent}% ({elapsed}, {eta} left)";
        Self::shown(what, Some(steps), template)
    }

    /// For reading, whose end is not known: counts rows.
    #[must_use]
    pub fn rows() -> Self {
        Self::shown(
            "reading",
            None,
            "{spinner} {prefix}: {human_pos} rows ({elapsed})",
        )
    }

    /// For one step whose end is not known.
    #[must_use]
    pub fn stage(what: &str) -> Self {
        Self::shown(what, None, "{spinner} {prefix} ({elapsed})")
    }

    fn shown(what: &str, steps: Option<u64>, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        let (done, over) = mpsc::channel();
        let drawn = bar.clone();
        let draw = move || {
            if over.recv_timeout(BEFORE) == Err(RecvTimeoutError::Timeout) {
                drawn.set_draw_target(ProgressDrawTarget::stderr());
                while over.recv_timeout(EACH) == Err(RecvTimeoutError::Timeout) {
                    drawn.tick();
                }
            }
        };
        // Without a thread there is no bar, and the work goes on.
        let drawer = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(draw);
        Self {
            bar,
            done: drawer.ok().map(|drawer| (done, drawer)),
        }
    }

    /// So many steps are done.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((done, drawer)) = self.done.take() {
            drop(done);
            let _ = drawer.join();
        }
        self.bar.finish_and_clear();
    }
}

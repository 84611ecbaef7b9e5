//! The replayer as the hooks see it: opens the plan when the driver is up, hands every event to
//! the session, tells at the end what came of it. Whatever is wrong with the plan, the job runs.

use std::io;
use std::path::Path;
use std::sync::{Once, OnceLock};
use std::{fs, process};

use transit_capture::{Capture, Config, without_size_signal};
use transit_format::trace::model::Drops;
use transit_hook::driver::Driver;
use transit_hook::log::complain;
use transit_hook::observer::{Allocation, FunctionInfo, Observer, OpCall, StreamInfo};
use transit_hook::settings::Settings;
use transit_launch::template::{Place, expand};

use crate::load::{self, Loaded};
use crate::session::Session;

/// First word of every line on stderr.
pub(crate) const PREFIX: &str = "transit-replay";

/// Records the replayed run where asked to, and keeps an emulated card while the plan does not.
static CAPTURE: Capture = Capture::new();

/// The process' one replayer.
pub(crate) static DIRECTOR: Director = Director::new();

/// Hands the hooks' events on.
#[derive(Debug)]
pub(crate) struct Director {
    settings: OnceLock<Settings>,
    session: OnceLock<Session>,
    /// Why there is no session.
    problem: OnceLock<String>,
    told: Once,
}

/// Says one line.
fn say(text: &str) {
    complain(format_args!("{text}"));
}

impl Director {
    pub(crate) const fn new() -> Self {
        Self {
            settings: OnceLock::new(),
            session: OnceLock::new(),
            problem: OnceLock::new(),
            told: Once::new(),
        }
    }

    /// What the launcher asked for, before anything else.
    pub(crate) fn configure(&self, settings: Settings) {
        let _ = self.settings.set(settings);
    }

    /// The process uses the GPU: if there is no plan for it, now is the time to say so. Processes
    /// that only initialise CUDA (a launcher counting devices) say nothing.
    fn in_use(&self) {
        if let Some(problem) = self.problem.get() {
            self.told
                .call_once(|| say(&format!("{problem}; the job runs without directions")));
        }
    }

    fn quiet(&self) -> bool {
        self.settings.get().is_some_and(|settings| settings.quiet)
    }

    fn write_stats(&self, json: &str) {
        let template = self
            .settings
            .get()
            .and_then(|settings| settings.stats_json.as_deref());
        let Some(template) = template else { return };
        let path = expand(template, &Place::of_this_process());
        if let Err(error) = without_size_signal(|| publish(&path, json)) {
            say(&format!(
                "{}: statistics not written: {error}",
                path.display()
            ));
        }
    }
}

/// Writes a file in one piece.
fn publish(path: &Path, text: &str) -> io::Result<()> {
    // Renaming onto a pipe or a device would replace it.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let what = "is a folder, a pipe or a device; name a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", process::id()));
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// What is captured of a run under `loaded`: a trace if one was asked for, and what the plan's
/// emulated card needs.
fn capture_config(settings: &Settings, loaded: Option<&Loaded>) -> Config {
    let card_bytes = loaded
        .map(|loaded| loaded.plan.shape.card_bytes)
        .filter(|&bytes| bytes > 0);
    let policy = loaded.map(|loaded| loaded.plan.meta.policy.clone());
    let plan = loaded.map(|loaded| ("plan".to_owned(), loaded.path.display().to_string()));
    let hash = loaded.map(|loaded| {
        (
            "plan of trace".to_owned(),
            loaded.plan.meta.trace_hash.clone(),
        )
    });
    Config {
        prefix: PREFIX,
        quiet: settings.quiet,
        trace: settings.trace.clone(),
        skip_ops: 0,
        iterations: settings.iterations,
        max_bytes: settings.max_bytes,
        card_bytes,
        faults: settings.faults || card_bytes.is_some(),
        bursts: settings.bursts,
        min_convert_bytes: settings.min_bytes,
        replayed_policy: policy,
        notes: plan.into_iter().chain(hash).collect(),
    }
}

impl Observer for Director {
    fn started(&self, driver: &'static Driver) {
        let Some(settings) = self.settings.get() else {
            return;
        };
        let loaded = load::load(settings.plan.as_deref());
        CAPTURE.start(capture_config(settings, loaded.as_ref().ok()), driver);
        match loaded {
            Ok(loaded) => drop(self.session.set(Session::new(driver, loaded, &CAPTURE))),
            Err(error) => drop(self.problem.set(error)),
        }
    }

    fn function(&self, function: &FunctionInfo<'_>) {
        CAPTURE.function(function);
    }

    fn stream(&self, stream: &StreamInfo) {
        self.in_use();
        CAPTURE.stream(stream);
        if let Some(session) = self.session.get() {
            session.stream(stream);
        }
    }

    fn allocated(&self, allocation: &Allocation) {
        self.in_use();
        CAPTURE.allocated(allocation);
        if let Some(session) = self.session.get() {
            session.allocated(allocation);
        }
    }

    fn freeing(&self, allocation: &Allocation) {
        CAPTURE.freeing(allocation);
        if let Some(session) = self.session.get() {
            session.freeing(allocation);
        }
    }

    fn before_op(&self, op: &OpCall<'_>) -> Option<u64> {
        let issued = CAPTURE.before_op(op);
        let mut has_card = false;
        if let Some(session) = self.session.get() {
            if session.before_op(op) {
                CAPTURE.iteration();
            }
            has_card = session.has_card();
        }
        (issued != 0 || has_card).then_some(issued)
    }

    fn after_op(&self, op: &OpCall<'_>, issued: u64, result: u32) {
        CAPTURE.after_op(op, issued, result);
        if let Some(session) = self.session.get() {
            session.after_op(op, issued);
        }
    }

    fn synchronised(&self) {
        CAPTURE.synchronised();
    }

    fn capturing(&self, begin: bool) {
        CAPTURE.capturing(begin);
        if let Some(session) = self.session.get() {
            session.captured(begin);
        }
    }

    fn context_ends(&self) {
        CAPTURE.checkpoint();
    }

    fn context_gone(&self, context: usize) {
        CAPTURE.context_gone(context);
    }

    fn closing(&self) {
        let written = CAPTURE.finish();
        if let Some(outcome) = written.filter(|outcome| outcome.totals.drops != Drops::default()) {
            let Drops {
                ops,
                cupti,
                unplaced,
                bad_times,
            } = outcome.totals.drops;
            say(&format!(
                "{}: lost {ops} ops and {cupti} CUPTI records, left out {unplaced} outside tracked \
                 memory and {bad_times} with impossible times",
                outcome.path.display()
            ));
        }
        let Some(session) = self.session.get() else {
            return;
        };
        let summary = session.summary();
        if summary.idle() {
            return;
        }
        if !self.quiet() {
            say(&summary.line(&session.tally));
        }
        self.write_stats(&summary.json(&session.tally));
    }

    fn populates(&self) -> bool {
        let session = self.session.get();
        !session.is_some_and(|session| session.sends_to_host)
    }

    fn writes_down(&self) -> bool {
        CAPTURE.wants_ops()
    }
}

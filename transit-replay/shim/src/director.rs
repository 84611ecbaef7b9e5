//! The replayer as the hooks see it: opens the plan when the driver is up, hands every event to
//! the session, tells at the end what came of it. Whatever is wrong with the plan, the job runs.

use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, process};

use transit_hook::driver::Driver;
use transit_hook::observer::{Allocation, FunctionInfo, Observer, OpCall, StreamInfo};
use transit_hook::settings::Settings;
use transit_launch::template::{Place, expand};

use crate::load;
use crate::session::Session;

/// First word of every line on stderr.
pub(crate) const PREFIX: &str = "transit-replay";

/// The process' one replayer.
#[derive(Debug)]
pub(crate) struct Director {
    settings: OnceLock<Settings>,
    session: OnceLock<Session>,
}

/// Says one line.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{PREFIX}: {text}");
}

impl Director {
    pub(crate) const fn new() -> Self {
        Self {
            settings: OnceLock::new(),
            session: OnceLock::new(),
        }
    }

    /// What the launcher asked for, before anything else.
    pub(crate) fn configure(&self, settings: Settings) {
        let _ = self.settings.set(settings);
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
        if let Err(error) = publish(&path, json) {
            say(&format!(
                "{}: statistics not written: {error}",
                path.display()
            ));
        }
    }
}

/// Writes a file in one piece.
fn publish(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", process::id()));
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

impl Observer for Director {
    fn started(&self, driver: &'static Driver) {
        let Some(settings) = self.settings.get() else {
            return;
        };
        match load::load(settings.plan.as_deref()) {
            Ok(loaded) => drop(self.session.set(Session::new(driver, loaded))),
            Err(error) => say(&format!("{error}; the job runs without directions")),
        }
    }

    fn function(&self, _: &FunctionInfo<'_>) {}

    fn stream(&self, stream: &StreamInfo) {
        if let Some(session) = self.session.get() {
            session.stream(stream);
        }
    }

    fn allocated(&self, allocation: &Allocation) {
        if let Some(session) = self.session.get() {
            session.allocated(allocation);
        }
    }

    fn freeing(&self, allocation: &Allocation) {
        if let Some(session) = self.session.get() {
            session.freeing(allocation);
        }
    }

    fn before_op(&self, op: &OpCall<'_>) {
        if let Some(session) = self.session.get() {
            session.before_op(op);
        }
    }

    fn after_op(&self, _: &OpCall<'_>, _: u32) {}

    fn synchronised(&self) {}

    fn capturing(&self, begin: bool) {
        if let Some(session) = self.session.get() {
            session.captured(begin);
        }
    }

    fn closing(&self) {
        let Some(session) = self.session.get() else {
            return;
        };
        let summary = session.summary();
        if !self.quiet() {
            say(&summary.line(&session.tally));
        }
        self.write_stats(&summary.json(&session.tally));
    }

    fn wants_host_time(&self) -> bool {
        self.settings
            .get()
            .is_some_and(|settings| settings.trace.is_some())
    }
}

//! The cold start of a capture: CUPTI opened, the header gathered, the file made, the writer
//! thread started. Whatever fails costs that part of the recording, never the job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use transit_format::trace::model::Header;
use transit_hook::log::complain;
use transit_hook::{Driver, state::as_our_own};
use transit_launch::template::Place;

use crate::assemble::Assembler;
use crate::capture::Capture;
use crate::clock::{Clock, IssueClock};
use crate::config::Config;
use crate::cupti::Session;
use crate::file::TraceFile;
use crate::sampling::Turns;
use crate::size_limit::without_size_signal;
use crate::writer::{Outcome, WriterThread, block_signals, restore_signals};

/// What was opened at the first allocation or op.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) clock: Clock,
    pub(crate) issue: IssueClock,
    pub(crate) session: Option<Session>,
    /// CUPTI records.
    pub(crate) running: AtomicBool,
    /// Which ops it is asked for.
    pub(crate) turns: Turns,
    /// It does so for kernels, memsets and copies.
    pub(crate) working: AtomicBool,
    /// CUPTI tells of transfers.
    pub(crate) paging: AtomicBool,
    /// Why CUPTI, or its records of transfers, is missing.
    note: Option<String>,
}

/// Finds CUPTI, and starts it if the window opens at once.
pub(crate) fn open_cupti(config: &Config, opens_now: bool) -> Started {
    let (session, note) = match Session::open() {
        Ok(session) => {
            // CUPTI may have been loaded just now, and is asked for the last records at the end.
            transit_hook::close_before_what_is_loaded();
            (Some(session), None)
        }
        Err(failure) => (None, Some(failure.to_string())),
    };
    if let Some(note) = &note {
        complain(format_args!(
            "no CUPTI, so no migrations and no kernel times: {note}"
        ));
    }
    let mut started = Started {
        clock: Clock::start(session),
        issue: IssueClock::default(),
        session,
        running: AtomicBool::new(false),
        turns: Turns::new(session.is_none()),
        working: AtomicBool::new(false),
        paging: AtomicBool::new(false),
        note,
    };
    if opens_now {
        started.note = started.run(config).or(started.note);
    }
    started
}

impl Started {
    /// Starts CUPTI's records; says and returns what is missing.
    pub(crate) fn run(&self, config: &Config) -> Option<String> {
        let session = self.session.as_ref()?;
        let mut outcome = Ok(None);
        let now = || self.issue.read(&self.clock);
        self.turns
            .turn(now, || outcome = session.start(config.faults));
        self.working.store(outcome.is_ok(), Ordering::Release);
        let note = match outcome {
            Ok(None) => None,
            Ok(Some(failure)) => Some(format!("no migrations: {failure}")),
            Err(failure) => Some(format!("no migrations and no kernel times: {failure}")),
        };
        self.running.store(true, Ordering::Release);
        self.paging.store(note.is_none(), Ordering::Release);
        if let Some(note) = &note {
            complain(format_args!("{note}"));
        }
        note
    }
}

/// Makes the file and starts the thread that writes it.
pub(crate) fn spawn_writer(capture: &'static Capture, driver: &'static Driver, device: u32) {
    // The header is written here, on a thread of the job's.
    match without_size_signal(|| writer_thread(capture, driver, device)) {
        Ok(thread) => {
            let before = block_signals();
            let spawned = std::thread::Builder::new()
                .name("transit-writer".to_owned())
                .spawn(move || run(capture, driver, thread));
            restore_signals(&before);
            if let Err(error) = spawned {
                complain(format_args!(
                    "cannot start the writer thread, nothing is recorded: {error}"
                ));
                capture.written(None);
            }
        }
        Err(text) => {
            complain(format_args!("nothing is recorded: {text}"));
            capture.written(None);
        }
    }
}

fn run(capture: &'static Capture, driver: &'static Driver, thread: WriterThread) {
    let _ = driver.thread_capture_relaxed();
    let path = thread.path().to_owned();
    let written = catch_unwind(AssertUnwindSafe(|| as_our_own(|| thread.run())));
    let outcome: Option<Outcome> = match written {
        Ok(Ok(outcome)) => Some(outcome),
        Ok(Err(error)) => {
            let (path, reason) = (path.display(), reason(&error));
            complain(format_args!(
                "recording ends here, {path} holds what was written: {reason}"
            ));
            None
        }
        Err(_) => {
            complain(format_args!(
                "recording ends here: a fault in the writer thread, please report it"
            ));
            None
        }
    };
    if let Some(session) = capture.session().filter(|_| outcome.is_none()) {
        session.stop();
    }
    capture.written(outcome);
}

fn writer_thread(
    capture: &'static Capture,
    driver: &Driver,
    device: u32,
) -> Result<WriterThread, String> {
    let config = capture.config();
    let started = capture.started().ok_or("CUPTI was not looked for")?;
    let template = config.trace.as_deref().unwrap_or_default();
    let place = Place::of_this_process();
    let file = TraceFile::create(template, &place)
        .map_err(|error| format!("cannot write the trace {template}: {error}"))?;
    let header = header(config, started, driver, device, &place);
    let assembler = Assembler::new(started.clock, config.iterations.is_some());
    let path = file.path().to_owned();
    WriterThread::new(capture, file, &header, assembler).map_err(|error| {
        // A full disk: an empty file would be taken for a trace.
        let empty = |data: std::fs::Metadata| data.is_file() && data.len() == 0;
        if std::fs::metadata(&path).is_ok_and(empty) {
            let _ = std::fs::remove_file(&path);
        }
        format!("cannot write {}: {}", path.display(), reason(&error))
    })
}

/// An error without the name of the file, which the format does not know.
fn reason(error: &transit_format::Error) -> String {
    match error {
        transit_format::Error::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

fn header(
    config: &Config,
    started: &Started,
    driver: &Driver,
    device: u32,
    place: &Place,
) -> Header {
    let start_unix_s = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs());
    Header {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        host: place.host.clone(),
        pid: place.pid,
        rank: place.rank,
        local_rank: place.local_rank,
        start_unix_s,
        device_name: driver.device_name(device).unwrap_or_default(),
        device_total_bytes: driver.device_total_bytes(device).unwrap_or(0),
        driver_version: driver.version().unwrap_or(0),
        cupti_version: started.session.as_ref().map_or(0, Session::version),
        emulated_card_bytes: config.card_bytes,
        faults_recorded: config.faults,
        replayed_policy: config.replayed_policy.clone(),
        min_convert_bytes: config.min_convert_bytes,
        notes: notes(config, started),
    }
}

fn command_line() -> Vec<String> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty());
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

/// Variables that change how a job allocates, worth knowing when a plan does not fit.
const TELLING: [&str; 5] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "CUDA_VISIBLE_DEVICES",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "CUDA_MODULE_LOADING",
];

fn notes(config: &Config, started: &Started) -> Vec<(String, String)> {
    let mut notes = config.notes.clone();
    if let Some(note) = &started.note {
        notes.push(("cupti".to_owned(), note.clone()));
    }
    for name in TELLING {
        if let Ok(value) = std::env::var(name) {
            notes.push((name.to_owned(), value));
        }
    }
    if config.skip_ops > 0 {
        notes.push((
            "window begins at op".to_owned(),
            config.skip_ops.to_string(),
        ));
    }
    if let Some(iterations) = config.iterations {
        notes.push((
            "window length, iterations".to_owned(),
            iterations.to_string(),
        ));
    }
    if config.card_bytes.is_some() {
        let text = "migrations and faults belong to the op that was settled; residency is exact \
                    to what the driver moves at once, 64 KiB to 2 MiB";
        notes.push(("emulated card".to_owned(), text.to_owned()));
    }
    notes
}

//! The writer thread: empties the rings, reads CUPTI, writes blocks. It is the only thread that
//! touches the file, blocks every signal (they are the job's) and is in RELAXED capture mode, so
//! that a flush of CUPTI's cannot ruin a capture of the job's.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use transit_format::Error;
use transit_format::trace::Writer;
use transit_format::trace::model::{Event, Header, MarkKind, Totals};
use transit_hook::ledger;

use crate::assemble::{Assembler, Lost};
use crate::capture::{Capture, Wake};
use crate::collect::Collected;
use crate::cupti::handed_over;
use crate::file::TraceFile;
use crate::ring::Ring;
use crate::sampling::{Budget, Taken};
use crate::told::Timed;
use crate::wire;

/// Visits while ops come, and while none do.
const BUSY: Duration = Duration::from_millis(10);
const QUIET: Duration = Duration::from_millis(100);
/// A block is closed at least this often.
const BLOCK: Duration = Duration::from_secs(1);
/// CUPTI's flush holds up launches for a few milliseconds; this share of the time at most.
const FLUSH_SHARE: u32 = 200;
/// After the window closed, how long its last ops may take to end.
const LAST_OPS: Duration = Duration::from_secs(2);

/// What became of a trace.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What it holds.
    pub totals: Totals,
    /// Migrations in it.
    pub migrations: u64,
    /// Whole iterations in it, if they were counted.
    pub iterations: Option<u32>,
}

pub(crate) struct WriterThread {
    capture: &'static Capture,
    writer: Writer<TraceFile>,
    assembler: Assembler,
    path: PathBuf,
    rings: Vec<Arc<Ring>>,
    words: Vec<u64>,
    told: Vec<Timed>,
    collected: Vec<Collected>,
    events: Vec<Event>,
    migrations: u64,
    cupti_dropped: u64,
    last_block: Instant,
    last_flush: Instant,
    flush_cost: Duration,
    last_estimate: Instant,
    opened: bool,
    budget: Budget,
    taken: Taken,
    taking: bool,
    last_budget: Instant,
}

impl WriterThread {
    pub(crate) fn new(
        capture: &'static Capture,
        file: TraceFile,
        header: &Header,
        assembler: Assembler,
    ) -> Result<Self, Error> {
        let now = Instant::now();
        let path = file.path().to_owned();
        Ok(Self {
            capture,
            writer: Writer::new(file, header)?,
            assembler,
            path,
            rings: Vec::new(),
            words: Vec::new(),
            told: Vec::new(),
            collected: Vec::new(),
            events: Vec::new(),
            migrations: 0,
            cupti_dropped: 0,
            last_block: now,
            last_flush: now,
            flush_cost: Duration::ZERO,
            last_estimate: now,
            opened: false,
            budget: Budget::default(),
            taken: Taken::default(),
            taking: true,
            last_budget: now,
        })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs until the window closes or the process ends.
    pub(crate) fn run(mut self) -> Result<Outcome, Error> {
        let mut pause = BUSY;
        loop {
            let wake = self.capture.wait(pause);
            if wake == Wake::End {
                return self.finish(true);
            }
            if wake != Wake::Timer && self.flush(false) {
                self.assembler.flushed();
            }
            self.capture.compare_clocks();
            let came = self.gather();
            pause = if came { BUSY } else { QUIET };
            self.keep_to_budget();
            let block_due = wake != Wake::Timer || self.last_block.elapsed() >= BLOCK;
            let stuck = block_due && self.assembler.stuck();
            self.assembler.advance(stuck, false, &mut self.events);
            self.write()?;
            if block_due {
                self.close_block()?;
            }
            if let Wake::Checkpoint(number) = wake {
                self.capture.checkpoint_made(number);
            }
            if came && self.window_is_full() {
                return self.finish(false);
            }
        }
    }

    /// Takes in everything there is: records first, since the ops they belong to are in the rings
    /// by then, and what was told last, since it was told before the ops that use it.
    fn gather(&mut self) -> bool {
        let flush_due = self.last_flush.elapsed() >= BLOCK.max(self.flush_cost * FLUSH_SHARE);
        if flush_due && self.flush(false) {
            self.assembler.flushed();
        }
        self.capture.collect(&mut self.collected);
        let mut came = false;
        self.capture.rings.snapshot(&mut self.rings);
        for ring in &self.rings {
            while ring.take(&mut self.words, wire::length) {
                came = true;
                if let Some(op) = wire::decode(&self.words) {
                    self.taken.count(&op);
                    self.assembler.op(op);
                }
            }
        }
        {
            let mut told = self
                .capture
                .told
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *told, &mut self.told);
        }
        for timed in self.told.drain(..) {
            self.assembler.tell(timed);
        }
        for collected in self.collected.drain(..) {
            self.assembler.record(collected);
        }
        if !self.opened
            && let Some(first) = self.capture.opened_at()
        {
            self.opened = true;
            self.assembler.open(first);
            self.events
                .push(self.assembler.mark_now(MarkKind::WindowBegin));
        }
        came
    }

    /// Turns CUPTI's records off where they have cost enough, and on again. Where anything migrates,
    /// or may, every op keeps its times: a transfer belongs to the op that ran.
    fn keep_to_budget(&mut self) {
        let elapsed = self.last_budget.elapsed();
        self.last_budget = Instant::now();
        let taken = std::mem::take(&mut self.taken);
        let hidden = self.assembler.pace.device_behind();
        let wanted = self.budget.wanted(elapsed, taken, hidden)
            || self.migrations > 0
            || self.capture.times_every_op();
        if wanted != self.taking && self.capture.records_come() && !handed_over() {
            self.taking = wanted;
            self.capture.turn_records(wanted);
        }
    }

    fn flush(&mut self, forced: bool) -> bool {
        self.last_flush = Instant::now();
        let Some(session) = self.capture.session() else {
            return false;
        };
        session.flush(forced);
        self.flush_cost = self.last_flush.elapsed();
        self.cupti_dropped += session.dropped();
        true
    }

    fn write(&mut self) -> Result<(), Error> {
        for event in self.events.drain(..) {
            self.migrations += u64::from(matches!(event, Event::Migration(_)));
            self.writer.push(event)?;
        }
        Ok(())
    }

    fn totals(&mut self) -> Totals {
        let lost = Lost {
            ops: self.capture.rings.dropped(),
            cupti: self.cupti_dropped + self.capture.records_dropped(),
            passed: self.capture.passed_in_window(),
            // What another tool got was not lost.
            checkable: self.capture.records_come() && !handed_over(),
        };
        self.assembler.totals(&ledger::counters(), &lost)
    }

    fn close_block(&mut self) -> Result<(), Error> {
        let totals = self.totals();
        self.writer.push(Event::Totals(totals))?;
        self.writer.flush_block()?;
        self.last_block = Instant::now();
        Ok(())
    }

    fn window_is_full(&mut self) -> bool {
        if self.last_estimate.elapsed() < QUIET {
            return false;
        }
        self.last_estimate = Instant::now();
        let config = self.capture.config();
        let long = config
            .max_bytes
            .is_some_and(|most| self.writer.bytes_written() >= most);
        // The first iteration differs from the rest, so one more than asked for.
        let enough = config.iterations.zip(self.assembler.iterations());
        long || enough.is_some_and(|(wanted, begun)| u64::from(begun) > wanted)
    }

    /// The end of the file. What is on record already is written before CUPTI is asked, which may
    /// hang in a process that is being torn down.
    fn finish(mut self, process_ends: bool) -> Result<Outcome, Error> {
        self.capture.close_window();
        self.gather();
        self.assembler.advance(true, false, &mut self.events);
        self.write()?;
        self.close_block()?;
        if !process_ends {
            self.wait_for_last_ops()?;
        }
        self.flush(true);
        if let Some(session) = self.capture.session() {
            session.stop();
        }
        self.gather();
        if process_ends {
            self.assembler.process_ends();
        }
        self.assembler.advance(true, true, &mut self.events);
        self.events
            .push(self.assembler.mark_now(MarkKind::WindowEnd));
        self.write()?;
        let totals = self.totals();
        self.writer.push(Event::Totals(totals.clone()))?;
        let iterations = self.assembler.iterations();
        let migrations = self.migrations;
        let file = self.writer.finish()?;
        let bytes = std::fs::metadata(file.path()).map_or(0, |metadata| metadata.len());
        Ok(Outcome {
            path: self.path,
            bytes,
            totals,
            migrations,
            iterations,
        })
    }

    fn wait_for_last_ops(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        while began.elapsed() < LAST_OPS && self.capture.wait(QUIET) != Wake::End {
            if self.flush(false) {
                self.assembler.flushed();
            }
            self.gather();
            self.assembler.advance(true, false, &mut self.events);
            self.write()?;
            if self.assembler.all_timed() {
                break;
            }
        }
        Ok(())
    }
}

/// Blocks every signal on the calling thread and gives back what was blocked before.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: an all-zero sigset is a valid value of this plain C struct.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: `all` is writable.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
    before
}

/// Gives a thread its signals back.
pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: `before` came from `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

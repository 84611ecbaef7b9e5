//! A process' capture: what a shim's observer calls, and what ties rings, CUPTI, the emulated card
//! and the writer thread together.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use transit_format::ids::{FunctionId, OpSeq, StreamId};
use transit_format::trace::model::MarkKind;
use transit_hook::{
    Allocation, Chunk, Driver, FunctionInfo, OpCall, StreamInfo, ledger, ops_issued,
    passed_transfers,
};

use crate::clock::Clock;
use crate::collect::{Collected, Collector};
use crate::config::Config;
use crate::cupti::{Session, handed_over};
use crate::ring::Rings;
use crate::settle::{SettleCounts, Settler};
use crate::start::{self, Started};
use crate::told::{Timed, Told, TrackedAlloc};
use crate::wire;
use crate::writer::Outcome;

/// How long the end of a process waits for the file to be finished.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// How long a window's opening waits for the ops before it.
const EARLIER_OPS: Duration = Duration::from_secs(2);
/// A job that polls for the device in a loop gets no more marks than this between two visits of
/// the writer.
const MOST_MARKS: usize = 1 << 14;

thread_local! {
    /// The per-thread default stream this thread asked CUPTI about last.
    static NUMBERED: Cell<Option<StreamId>> = const { Cell::new(None) };
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

const WAITING: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// Why the writer thread wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Timer,
    Checkpoint(u64),
    End,
}

#[derive(Debug, Default)]
struct Control {
    /// Checkpoints asked for and made.
    asked: u64,
    made: u64,
    end: bool,
    done: bool,
    outcome: Option<Outcome>,
}

/// One process' capture; see the crate's documentation for how a shim uses it.
#[derive(Debug)]
pub struct Capture {
    phase: AtomicU8,
    first_op: AtomicU64,
    /// Memsets and copies that had been let pass when the window opened.
    passed_before: AtomicU64,
    config: OnceLock<Config>,
    driver: OnceLock<&'static Driver>,
    pub(crate) rings: Rings,
    pub(crate) told: Mutex<Vec<Timed>>,
    streams: Mutex<Vec<StreamInfo>>,
    started: OnceLock<Started>,
    collector: Mutex<Option<Collector>>,
    settler: Settler,
    writing: AtomicBool,
    control: Mutex<Control>,
    changed: Condvar,
}

/// A lock whatever happened to a thread that held it: what it guards stays consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Capture {
    fn default() -> Self {
        Self::new()
    }
}

impl Capture {
    /// A capture that does nothing until [`Self::start`].
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: AtomicU8::new(CLOSED),
            first_op: AtomicU64::new(0),
            passed_before: AtomicU64::new(0),
            config: OnceLock::new(),
            driver: OnceLock::new(),
            rings: Rings::new(),
            told: Mutex::new(Vec::new()),
            streams: Mutex::new(Vec::new()),
            started: OnceLock::new(),
            collector: Mutex::new(None),
            settler: Settler::new(),
            writing: AtomicBool::new(false),
            control: Mutex::new(Control {
                asked: 0,
                made: 0,
                end: false,
                done: false,
                outcome: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Says what is wanted, from the observer's `started`. Opens nothing yet: the file, CUPTI and
    /// the writer thread come with the first allocation or op. A second call is ignored.
    pub fn start(&self, config: Config, driver: &'static Driver) {
        let wanted = config.wanted();
        if self.config.set(config).is_err() || self.driver.set(driver).is_err() || !wanted {
            return;
        }
        self.phase.store(WAITING, Ordering::Release);
    }

    /// Whether the window is open: ops are recorded, and settled if a card is emulated.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OPEN
    }

    pub(crate) fn config(&self) -> &Config {
        static NOTHING: OnceLock<Config> = OnceLock::new();
        self.config
            .get()
            .unwrap_or_else(|| NOTHING.get_or_init(Config::default))
    }

    pub(crate) fn started(&self) -> Option<&Started> {
        self.started.get()
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.started.get()?.session.as_ref()
    }

    /// The first op of the window, once it is open.
    pub(crate) fn opened_at(&self) -> Option<OpSeq> {
        let open = self.phase.load(Ordering::Acquire) != WAITING;
        open.then(|| OpSeq(self.first_op.load(Ordering::Acquire)))
    }

    /// Whether ops are to be written down, now or later.
    #[must_use]
    pub fn wants_ops(&self) -> bool {
        !self.over()
    }

    fn over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == CLOSED
    }

    fn tell(&self, told: Told) {
        let Some(started) = self
            .started
            .get()
            .filter(|_| self.writing.load(Ordering::Relaxed))
        else {
            return;
        };
        let timed = Timed {
            at_op: ops_issued(),
            raw_ns: started.clock.read(),
            told,
        };
        let mut queue = lock(&self.told);
        let droppable = matches!(timed.told, Told::Mark(MarkKind::Sync));
        if !droppable || queue.len() < MOST_MARKS {
            queue.push(timed);
        }
    }

    /// Opens what is not open yet: CUPTI, the file, the writer thread.
    #[cold]
    fn prepare(&'static self, device: u32) {
        let Some(driver) = self.driver.get() else {
            return;
        };
        let mut fresh = false;
        self.started.get_or_init(|| {
            fresh = true;
            let config = self.config();
            let opens_now = config.skip_ops == 0;
            let started = start::open_cupti(config, opens_now);
            let clock = started.clock;
            let wants_queue = config.trace.is_some();
            *lock(&self.collector) = Some(Collector::new(clock, config.card_bytes, wants_queue));
            self.writing.store(wants_queue, Ordering::Release);
            started
        });
        if fresh && self.config().trace.is_some() {
            start::spawn_writer(self, driver, device);
        }
    }

    /// Opens the window at op `first`.
    #[cold]
    fn open(&'static self, first: OpSeq, device: u32) {
        self.prepare(device);
        let Some(started) = self.started.get() else {
            return;
        };
        self.first_op.store(first.0, Ordering::Release);
        self.passed_before
            .store(passed_transfers(), Ordering::Release);
        if self
            .phase
            .compare_exchange(WAITING, OPEN, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        if !started.running.load(Ordering::Acquire) {
            self.let_earlier_ops_end();
            let _ = started.run(self.config());
            self.number_streams();
        }
        if self.config().card_bytes.is_some() && self.config().skip_ops > 0 {
            self.empty_the_card();
        }
    }

    /// Everything on the device at the window's start goes to the host, so that the card starts
    /// empty.
    fn empty_the_card(&self) {
        let Some(driver) = self.driver.get() else {
            return;
        };
        let extents = self
            .with_collector(|collector, _| collector.converted())
            .unwrap_or_default();
        if let Some(_turn) = self.settler.turn() {
            self.settler.to_host(driver, &extents);
        }
    }

    /// Work issued before the window must not be taken for the window's. Waits for it, but not for
    /// long: an excluded caller's op may need the very thread that waits here.
    fn let_earlier_ops_end(&self) {
        let (Some(driver), Some(_turn)) = (self.driver.get(), self.settler.turn()) else {
            return;
        };
        let streams: Vec<usize> = lock(&self.streams)
            .iter()
            .map(|stream| stream.handle)
            .collect();
        let began = Instant::now();
        for stream in streams {
            while driver.stream_done(stream) == Ok(false) && began.elapsed() < EARLIER_OPS {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn number_streams(&self) {
        let streams = {
            let mut streams = lock(&self.streams);
            let (own, others) = streams
                .drain(..)
                .partition(|stream| stream.handle == PER_THREAD);
            *streams = own;
            let others: Vec<StreamInfo> = others;
            others
        };
        for stream in streams {
            if let Some(number) = self.cupti_stream(&stream) {
                self.tell(Told::StreamNumber(stream.id, number));
            }
        }
    }

    fn cupti_stream(&self, stream: &StreamInfo) -> Option<(u32, u32)> {
        self.session()?.stream(stream.context, stream.handle)
    }
}

/// Observer events, in the order of the trait.
impl Capture {
    /// A function's first launch.
    pub fn function(&'static self, function: &FunctionInfo<'_>) {
        if self.over() {
            return;
        }
        self.prepare(0);
        self.tell(Told::Function {
            id: FunctionId(function.id.0),
            name: function.name.to_owned(),
            params: function.params,
        });
    }

    /// A stream's first op.
    pub fn stream(&'static self, stream: &StreamInfo) {
        if self.over() {
            return;
        }
        self.prepare(stream.device);
        let running = self
            .started
            .get()
            .is_some_and(|started| started.running.load(Ordering::Acquire));
        let cupti = if running {
            self.cupti_stream(stream)
        } else {
            None
        };
        if cupti.is_none() {
            lock(&self.streams).push(*stream);
        }
        let StreamInfo {
            id,
            kind,
            device,
            turn,
            ..
        } = *stream;
        self.tell(Told::Stream {
            id,
            kind,
            device,
            turn,
            cupti,
        });
    }

    /// A tracked allocation was made. In a window with an emulated card it starts on the host.
    pub fn allocated(&'static self, allocation: &Allocation) {
        if self.over() {
            return;
        }
        self.prepare(allocation.device);
        self.tell(Told::Alloc(TrackedAlloc {
            id: allocation.id,
            address: allocation.address,
            bytes: allocation.bytes,
            device: allocation.device,
            converted: allocation.converted,
            managed: allocation.managed,
            pooled: allocation.pool != 0,
            caller: allocation.caller,
        }));
        if self.config().skip_ops == 0 && self.phase.load(Ordering::Acquire) == WAITING {
            self.open(ops_issued(), allocation.device);
        }
        if self.config().card_bytes.is_some() && allocation.converted {
            let extent = (allocation.address, allocation.bytes);
            self.with_collector(|collector, _| collector.allocated(allocation.id, extent));
        }
        let starts_on_host =
            self.config().card_bytes.is_some() && allocation.converted && self.is_open();
        if let Some(driver) = self.driver.get().filter(|_| starts_on_host)
            && let Some(_turn) = self.settler.turn()
        {
            self.settler
                .to_host(driver, &[(allocation.address, allocation.bytes)]);
        }
    }

    /// A tracked allocation is about to be freed.
    pub fn freeing(&self, allocation: &Allocation) {
        if self.over() {
            return;
        }
        self.tell(Told::Free {
            id: allocation.id,
            address: allocation.address,
        });
        if self.config().card_bytes.is_some() {
            self.with_collector(|collector, _| collector.freed(allocation.id));
        }
    }

    /// An op is about to be issued: the window opens when its time has come. The time, on the trace's
    /// clock, for [`Self::after_op`]; 0 outside the window.
    #[inline]
    pub fn before_op(&'static self, op: &OpCall<'_>) -> u64 {
        // Without a recording this must cost nothing.
        if !self.over() || self.started.get().is_some() {
            self.stamp(op)
        } else {
            0
        }
    }

    fn stamp(&'static self, op: &OpCall<'_>) -> u64 {
        let waiting = self.phase.load(Ordering::Relaxed) == WAITING;
        let opens = waiting && !op.capturing && op.seq.0 >= self.config().skip_ops;
        if opens {
            self.open(op.seq, op.device);
        }
        let open = self.phase.load(Ordering::Relaxed) == OPEN;
        let Some(started) = self.started.get().filter(|_| open) else {
            return 0;
        };
        if op.stream_handle == PER_THREAD {
            self.number_own_stream(op);
        }
        let raw_ns = started.issue.read(&started.clock);
        let raw_ns = if opens {
            // The clock may stand still: this op is issued after CUPTI was started, not while.
            raw_ns.max(started.turns.after_last_ns())
        } else {
            raw_ns
        };
        started.turns.stamp(raw_ns)
    }

    /// CUPTI tells a per-thread default stream's number only to its own thread, so where the window
    /// opened later than the stream was told it is asked for here.
    fn number_own_stream(&self, op: &OpCall<'_>) {
        if NUMBERED.replace(Some(op.stream)) == Some(op.stream) {
            return;
        }
        let told = {
            let mut streams = lock(&self.streams);
            let place = streams.iter().position(|stream| stream.id == op.stream);
            place.map(|place| streams.swap_remove(place))
        };
        if let Some(stream) = told
            && let Some(number) = self.cupti_stream(&stream)
        {
            self.tell(Told::StreamNumber(stream.id, number));
        }
    }

    /// An op was issued, `stamped` being what [`Self::before_op`] said: records it. Does not settle;
    /// see [`Self::settle`].
    #[inline]
    pub fn after_op(&self, op: &OpCall<'_>, stamped: u64, result: u32) {
        // What was begun in the window belongs to it, though it may have closed meanwhile: its
        // records count.
        if stamped == 0 || op.capturing {
            return;
        }
        let Some(started) = self.started.get() else {
            return;
        };
        let (asked, raw_ns) = started.turns.asked(stamped);
        let issued = wire::Issued {
            raw_ns,
            void: result != 0,
            asked,
        };
        self.rings.with_own(|ring| {
            wire::push(ring, op, issued);
        });
    }

    /// The host waits for the device.
    pub fn synchronised(&self) {
        if self.is_open() {
            self.tell(Told::Mark(MarkKind::Sync));
        }
    }

    /// A capture is about to begin or has ended on a stream of the job. The beginning waits for a
    /// thread that is settling, bounded.
    pub fn capturing(&self, begin: bool) {
        self.settler.capturing(begin);
        if self.is_open() {
            let kind = if begin {
                MarkKind::CaptureBegin
            } else {
                MarkKind::CaptureEnd
            };
            self.tell(Told::Mark(kind));
        }
    }

    /// A replayer saw an iteration begin.
    pub fn iteration(&self) {
        if self.is_open() {
            self.tell(Told::Mark(MarkKind::Iteration));
        }
    }

    /// Brings the file up to date, bounded in time: what CUPTI has is on disk afterwards.
    pub fn checkpoint(&self) {
        if !self.is_open() || !self.writing.load(Ordering::Acquire) {
            return;
        }
        let mut control = lock(&self.control);
        control.asked += 1;
        let asked = control.asked;
        self.changed.notify_all();
        let _ = self
            .changed
            .wait_timeout_while(control, LAST_WRITE, |control| {
                !control.done && control.made < asked
            });
    }

    /// Finishes the file, bounded in time, and says what became of it. `None` if none was begun or
    /// the writer did not come to an end in time; the file then holds whole blocks up to there.
    pub fn finish(&self) -> Option<Outcome> {
        // CUPTI's own exit handlers come next; a thread that goes on launching must not meet them.
        self.settler.close();
        if !self.writing.load(Ordering::Acquire) {
            self.close_window();
            return None;
        }
        let mut control = lock(&self.control);
        control.end = true;
        self.changed.notify_all();
        let (mut control, _) = self
            .changed
            .wait_timeout_while(control, LAST_WRITE, |control| !control.done)
            .unwrap_or_else(PoisonError::into_inner);
        let outcome = control.outcome.take();
        drop(control);
        // A thread that is settling has CUPTI in its hands, which is about to end with the process.
        drop(self.settler.turn());
        outcome
    }
}

/// The emulated card, for shims that impose one.
impl Capture {
    /// After an op was issued: waits for it, reads what moved and evicts what is over the limit.
    /// Nothing happens without an emulated card, outside the window, or while a stream is
    /// captured; ops of excluded callers are never waited for.
    #[inline]
    pub fn settle(&self, op: &OpCall<'_>, raw_ns: u64) {
        let config = self.config.get();
        if config.is_some_and(|config| config.card_bytes.is_some()) {
            self.settle_on_card(op, raw_ns);
        }
    }

    fn settle_on_card(&self, op: &OpCall<'_>, raw_ns: u64) {
        if op.capturing || !self.is_open() {
            return;
        }
        let (Some(driver), Some(session)) = (self.driver.get(), self.session()) else {
            return;
        };
        if !self.sees_migrations() {
            return;
        }
        if op.excluded {
            self.settler.excluded(driver, op);
            self.settler.count(false);
            return;
        }
        let Some(_turn) = self.settler.turn() else {
            self.settler.count(false);
            return;
        };
        self.with_collector(|collector, clock| {
            collector.settle_begins(op.seq, clock.time(raw_ns).0);
        });
        // The window may have closed meanwhile, with the process: CUPTI must not be called then.
        if !self.settler.wait(driver, op) || !self.is_open() {
            self.settler.count(false);
            return;
        }
        session.flush(false);
        let unconverted = ledger::counters().unconverted_bytes;
        let evictions = self
            .with_collector(|collector, _| {
                collector.read(session);
                collector.evictions(op.device, unconverted)
            })
            .unwrap_or_default();
        let refused = self.settler.to_host(driver, &evictions);
        self.with_collector(|collector, _| {
            collector.still_there(op.device, &refused);
            collector.settle_ends(op.seq);
        });
        self.settler.count(true);
    }

    /// Chunks on the emulated card of `device`, sorted.
    #[must_use]
    pub fn resident(&self, device: u32) -> Vec<Chunk> {
        self.with_collector(|collector, _| collector.resident(device))
            .unwrap_or_default()
    }

    /// Moves every chunk on the card of `device` for which `keep` is false to the host: the start
    /// of a tracked iteration, whose plan knows what is resident. The caller's context must be
    /// current and nothing may be captured.
    pub fn evict_unless(&self, device: u32, keep: &dyn Fn(Chunk) -> bool) {
        let (Some(driver), Some(_turn)) = (self.driver.get(), self.settler.turn()) else {
            return;
        };
        let gone = self.with_collector(|collector, _| collector.remove_unless(device, keep));
        let refused = self.settler.to_host(driver, &gone.unwrap_or_default());
        self.with_collector(|collector, _| collector.still_there(device, &refused));
    }

    /// What settling did so far.
    #[must_use]
    pub fn settle_counts(&self) -> SettleCounts {
        self.settler.counts()
    }

    /// Whether CUPTI tells what moves; without it nothing can be settled.
    #[must_use]
    pub fn sees_migrations(&self) -> bool {
        self.started
            .get()
            .is_some_and(|started| started.paging.load(Ordering::Relaxed) && !handed_over())
    }

    /// A context has been destroyed, and what we had in it.
    pub fn context_gone(&self, context: usize) {
        self.settler.forget(context);
    }

    fn with_collector<T>(&self, work: impl FnOnce(&mut Collector, &Clock) -> T) -> Option<T> {
        let clock = self.started.get()?.clock;
        let mut collector = lock(&self.collector);
        collector.as_mut().map(|collector| work(collector, &clock))
    }
}

/// The writer thread's side.
impl Capture {
    /// Sleeps for `pause` or until something is asked for.
    pub(crate) fn wait(&self, pause: Duration) -> Wake {
        let control = lock(&self.control);
        let (control, _) = self
            .changed
            .wait_timeout_while(control, pause, |control| {
                !control.end && control.made == control.asked
            })
            .unwrap_or_else(PoisonError::into_inner);
        if control.end {
            Wake::End
        } else if control.made < control.asked {
            Wake::Checkpoint(control.asked)
        } else {
            Wake::Timer
        }
    }

    /// Turns CUPTI's records of kernels, sets and copies on or off, unless another tool has CUPTI.
    pub(crate) fn turn_records(&self, on: bool) {
        if let Some(started) = self.started()
            && let Some(session) = &started.session
        {
            let now = || started.issue.read(&started.clock);
            started.turns.turn(now, || session.take_work(on));
        }
    }

    /// A checkpoint is on disk.
    pub(crate) fn checkpoint_made(&self, number: u64) {
        lock(&self.control).made = number;
        self.changed.notify_all();
    }

    /// Finds out, or keeps up to date, whether the host's clock will do to stamp ops with.
    pub(crate) fn compare_clocks(&self) {
        // Settling after every op costs far more than CUPTI's time, and sorts records by it.
        if let Some(started) = self
            .started
            .get()
            .filter(|_| self.config().card_bytes.is_none())
        {
            started.issue.compare(&started.clock);
        }
    }

    /// Reads CUPTI's buffers and takes what is queued.
    pub(crate) fn collect(&self, into: &mut Vec<Collected>) {
        let mut collector = lock(&self.collector);
        let Some(collector) = &mut *collector else {
            return;
        };
        if let Some(session) = self.session() {
            collector.read(session);
        }
        collector.take_queue(into);
    }

    /// Memsets and copies in the window that were no ops.
    pub(crate) fn passed_in_window(&self) -> u64 {
        passed_transfers().saturating_sub(self.passed_before.load(Ordering::Acquire))
    }

    /// Whether no op may go without its times: bursts were not asked for, or memory moves.
    pub(crate) fn times_every_op(&self) -> bool {
        let config = self.config();
        let moves = config.card_bytes.is_some() || config.faults || transit_hook::oversubscribed();
        moves || !config.bursts
    }

    /// Whether CUPTI was started, and agreed.
    pub(crate) fn records_come(&self) -> bool {
        self.started
            .get()
            .is_some_and(|started| started.working.load(Ordering::Acquire))
    }

    pub(crate) fn records_dropped(&self) -> u64 {
        let collector = lock(&self.collector);
        collector.as_ref().map_or(0, Collector::dropped)
    }

    /// No op is recorded from here on.
    pub(crate) fn close_window(&self) {
        self.phase.store(CLOSED, Ordering::Release);
    }

    /// The writer thread has ended.
    pub(crate) fn written(&self, outcome: Option<Outcome>) {
        self.close_window();
        self.writing.store(outcome.is_some(), Ordering::Release);
        let mut control = lock(&self.control);
        control.done = true;
        control.outcome = outcome;
        self.changed.notify_all();
    }
}

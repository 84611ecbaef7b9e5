//! A process under a plan: the follower, the bindings and what is done with its verdicts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use transit_capture::Capture;
use transit_format::plan::model::Action;
use transit_hook::birth;
use transit_hook::driver::Driver;
use transit_hook::observer::{Allocation, OpCall, StreamInfo};

use crate::card::{Card, expected};
use crate::follow::bind::Bindings;
use crate::follow::ledger::{Ledger, Live};
use crate::follow::script::{OpRecord, Script};
use crate::follow::{Follower, Verdict};
use crate::guarded::Guarded;
use crate::issue::{Issuer, Target};
use crate::load::Loaded;
use crate::placed::Placed;
use crate::prepare::{self, LEAST_BYTES, Placements};
use crate::rebase::{self, PIECES, Piece};
use crate::tally::{Summary, Tally, add};

/// Longest wait of a capture's beginning for threads that are issuing.
const ISSUE_PATIENCE: Duration = Duration::from_secs(10);
/// Allocations advised between two looks at the ledger.
const ADVISED_AT_ONCE: usize = 64;

/// Everything that lives from `cuInit` to the process' end.
#[derive(Debug)]
pub(crate) struct Session {
    driver: &'static Driver,
    path: PathBuf,
    policy: String,
    script: Arc<Script>,
    bindings: Arc<Bindings>,
    ledger: Mutex<Ledger>,
    follower: Guarded<Follower>,
    placed: Placed,
    /// Where the plan has an emulated card.
    card: Option<Card>,
    /// The plan may have memory on the host: copies are prepared, and nothing is populated when made.
    pub(crate) sends_to_host: bool,
    /// The midpoint's advice has been given once.
    advised: AtomicBool,
    /// Captures open anywhere in the process.
    captures: AtomicU32,
    /// Threads that are issuing steps or advice at this moment.
    issuing: AtomicU32,
    /// What was done.
    pub(crate) tally: Tally,
}

impl Session {
    /// Lays the plan out; all memory the launch path needs is reserved and touched here.
    pub(crate) fn new(driver: &'static Driver, loaded: Loaded, capture: &'static Capture) -> Self {
        let script = Arc::new(Script::new(&loaded.plan));
        let bindings = Arc::new(Bindings::new(script.allocs.len()));
        Self {
            driver,
            path: loaded.path,
            policy: loaded.plan.meta.policy,
            ledger: Mutex::new(Ledger::new(&script)),
            follower: Guarded::new(Follower::new(Arc::clone(&script), Arc::clone(&bindings))),
            placed: Placed::new(&script),
            card: (script.shape.card_bytes > 0).then(|| Card::new(capture)),
            sends_to_host: prepare::sends_to_host(&script),
            advised: AtomicBool::new(false),
            captures: AtomicU32::new(0),
            issuing: AtomicU32::new(0),
            tally: Tally::default(),
            script,
            bindings,
        }
    }

    fn issuer(&self) -> Issuer<'_> {
        let Self {
            driver,
            script,
            bindings,
            tally,
            ..
        } = self;
        Issuer {
            driver,
            script,
            bindings,
            tally,
        }
    }

    /// The ledger, off the launch path. A panic elsewhere has left it in order: each change is
    /// made in one piece.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A stream's first op is about to come.
    pub(crate) fn stream(&self, info: &StreamInfo) {
        if self
            .follower
            .with_patience(|follower| follower.stream(info))
            .is_none()
        {
            add(&self.tally.contended, 1);
        }
    }

    /// A tracked allocation was made.
    pub(crate) fn allocated(&self, allocation: &Allocation) {
        let bound = self
            .ledger()
            .allocated(&self.script, &self.bindings, allocation);
        if bound.is_some() {
            self.unless_capturing(|| {
                self.placed
                    .follow(&self.issuer(), &self.ledger, allocation.device);
            });
        }
    }

    /// A tracked allocation is about to be freed.
    pub(crate) fn freeing(&self, allocation: &Allocation) {
        self.ledger().freeing(&self.bindings, allocation);
    }

    /// A capture is about to begin or has ended. A prefetch or advice made by any thread would
    /// ruin it, even on another stream (error 900, and the capture is lost): the beginning waits
    /// for threads that are issuing, which never takes long, and bounded in case it does.
    pub(crate) fn captured(&self, begin: bool) {
        if !begin {
            let down = |open: u32| Some(open.saturating_sub(1));
            let _ = self
                .captures
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, down);
            return;
        }
        self.captures.fetch_add(1, Ordering::SeqCst);
        let began = Instant::now();
        while self.issuing.load(Ordering::SeqCst) > 0 && began.elapsed() < ISSUE_PATIENCE {
            std::thread::yield_now();
        }
    }

    /// Does what a capture does not bear, unless one is open; whether it was done.
    fn unless_capturing(&self, work: impl FnOnce()) -> bool {
        // Counted first: a capture that begins now either is seen here or waits for this thread.
        self.issuing.fetch_add(1, Ordering::SeqCst);
        let free = self.captures.load(Ordering::SeqCst) == 0;
        if free {
            work();
        }
        self.issuing.fetch_sub(1, Ordering::SeqCst);
        free
    }

    /// An op is about to be issued; whether an iteration begins with it.
    pub(crate) fn before_op(&self, call: &OpCall<'_>) -> bool {
        let says_all = self.card.is_some();
        let mut verdict = None;
        let followed = self
            .follower
            .with(|follower| follower.op(call, says_all, &mut verdict));
        if followed.is_none() {
            add(&self.tally.contended, 1);
        }
        verdict.is_some_and(|verdict| self.carry_out(call, verdict))
    }

    /// Does what the verdict on an op asks for; whether an iteration begins.
    #[inline(never)]
    fn carry_out(&self, call: &OpCall<'_>, mut verdict: Verdict) -> bool {
        if let Some(card) = &self.card
            && !self.governed_by_plan(card, call, &verdict)
        {
            verdict.steps_of = None;
        }
        if verdict.steps_of.is_some() || verdict.midpoint || verdict.settle.is_some() {
            self.act(call, &verdict);
        }
        if !verdict.followed
            && prepare::wanted(call)
            && (self.sends_to_host || transit_hook::oversubscribed())
        {
            self.unless_capturing(|| self.prepare(call));
        }
        verdict.iteration
    }

    /// Sends the ranges of a copy that the plan does not direct to where it should find them.
    #[inline(never)]
    fn prepare(&self, call: &OpCall<'_>) {
        let placed = Placements {
            script: &self.script,
            bindings: &self.bindings,
        };
        let large = call
            .pointers
            .iter()
            .filter(|pointer| pointer.bytes >= LEAST_BYTES);
        let mut sent = 0;
        for pointer in large {
            let found = match self.ledger.try_lock() {
                Ok(ledger) => ledger.find(pointer.alloc.0).copied(),
                Err(_) => None,
            };
            let Some(live) = found.filter(|live| live.converted) else {
                continue;
            };
            let target = Target {
                device: live.device,
                stream: call.stream_handle,
            };
            let bytes = live.bytes.saturating_sub(pointer.offset).min(pointer.bytes);
            let from = live.address.saturating_add(pointer.offset);
            // More than that would evict its own beginning.
            let to = from.saturating_add(bytes.min(self.card_bytes(live.device) / 2));
            let mut send = |action, (from, to): (u64, u64)| {
                sent += self.issuer().send(action, from, to - from, target);
            };
            if live.pooled {
                // Nothing of it is placed: it takes no advice.
                send(Action::PrefetchToDevice, (from, to));
            } else {
                placed.each((from, to), live.advised, &mut send);
            }
        }
        add(&self.tally.prepared, u64::from(sent > 0));
        add(&self.tally.prepared_bytes, sent);
    }

    /// What the device holds, or its emulated card.
    fn card_bytes(&self, device: u32) -> u64 {
        match self.script.shape.card_bytes {
            0 => self.driver.device_total_bytes(device).unwrap_or(0),
            emulated => emulated,
        }
    }

    /// Whether the plan's steps may be issued where it has an emulated card.
    #[inline(never)]
    fn governed_by_plan(&self, card: &Card, call: &OpCall<'_>, verdict: &Verdict) -> bool {
        let Self {
            script, bindings, ..
        } = self;
        let ready = || {
            let advice_due = script.shape.advise_all_at_midpoint;
            !bindings.unconfirmed() && (!advice_due || self.advised.load(Ordering::Relaxed))
        };
        card.governed_by_plan(call, verdict, ready, || expected(script, bindings))
    }

    /// Whether the plan has an emulated card, which is to be told of issued ops.
    pub(crate) fn has_card(&self) -> bool {
        self.card.is_some()
    }

    /// The op was issued.
    pub(crate) fn after_op(&self, call: &OpCall<'_>, issued: u64) {
        if let Some(card) = &self.card {
            card.after_op(call, issued);
        }
    }

    /// Does what the plan has for an op. Most ops have nothing: it stays out of their way.
    #[inline(never)]
    fn act(&self, call: &OpCall<'_>, verdict: &Verdict) {
        if let Some(whole) = verdict.settle {
            self.settle(whole, call.device);
        }
        let place = verdict.steps_of.map(|place| place as usize);
        let op = place.and_then(|place| self.script.ops.get(place));
        let done = self.unless_capturing(|| {
            if verdict.midpoint && self.script.shape.advise_all_at_midpoint {
                self.advise_all();
            }
            match op {
                Some(op) if verdict.moved => self.moved_steps(call, op),
                Some(op) => self.issuer().steps(op, Target::of(call)),
                None => {}
            }
        });
        if let Some(op) = op.filter(|_| !done) {
            add(&self.tally.under_capture, u64::from(op.steps));
        }
    }

    /// Issues the steps of an op whose data lies elsewhere than when recorded: what comes to the
    /// device for it is found by its own pointers, everything else by the bindings.
    fn moved_steps(&self, call: &OpCall<'_>, op: &OpRecord) {
        let issuer = self.issuer();
        let target = Target::of(call);
        let planned = self.script.pointers_of(op);
        for step in self.script.steps_of(op) {
            let mut issued = false;
            for range in self.script.ranges_of(step) {
                let mut pieces = [Piece::default(); PIECES];
                let found = match step.action {
                    Action::PrefetchToDevice => {
                        rebase::pieces(planned, call.pointers, range, &mut pieces)
                    }
                    _ => None,
                };
                let Some(count) = found else {
                    issued |= issuer.range(step.action, range, target);
                    continue;
                };
                for (address, bytes) in self.located(&pieces, count).into_iter().flatten() {
                    issuer.act(step.action, address, bytes, target);
                    issued = true;
                }
            }
            add(&self.tally.steps, u64::from(issued));
        }
    }

    /// Addresses of pieces of live allocations, cut to what is there.
    fn located(&self, pieces: &[Piece; PIECES], count: usize) -> [Option<(u64, u64)>; PIECES] {
        let mut located = [None; PIECES];
        let Ok(ledger) = self.ledger.try_lock() else {
            return located;
        };
        for (slot, piece) in located.iter_mut().zip(pieces).take(count) {
            *slot = ledger.find(piece.live).and_then(|live| {
                let bytes = piece.bytes.min(live.bytes.saturating_sub(piece.offset));
                (bytes > 0).then_some((live.address + piece.offset, bytes))
            });
        }
        located
    }

    /// Confirms or corrects bindings by the iteration's votes. If an allocating thread has the
    /// ledger at this moment the next iteration's votes will do.
    fn settle(&self, whole: bool, device: u32) {
        let Ok(mut ledger) = self.ledger.try_lock() else {
            return;
        };
        let Self {
            script,
            bindings,
            follower,
            ..
        } = self;
        let resolved = follower.with(|follower| {
            let resolved = ledger.resolve(script, bindings, &follower.votes, whole);
            follower.votes_settled(resolved.settled);
            resolved
        });
        drop(ledger);
        if resolved.is_some_and(|resolved| resolved.changed > 0) {
            self.unless_capturing(|| self.placed.follow(&self.issuer(), &self.ledger, device));
        }
    }

    /// The paper's Advise: `SetAccessedBy` on every tracked allocation, once each, on the launching
    /// thread, where the paper has it. The call maps what is on the host block by block and takes
    /// about 25 ms per GiB there, once in a job's life; a helper thread would save none of it,
    /// since advice holds the lock that faults and prefetches need, and would move the moment at
    /// which zero-copy begins.
    fn advise_all(&self) {
        loop {
            let mut batch = [Live::default(); ADVISED_AT_ONCE];
            let Ok(mut ledger) = self.ledger.try_lock() else {
                return;
            };
            let count = ledger.take_unadvised(&mut batch);
            drop(ledger);
            for live in batch.iter().take(count) {
                let target = Target {
                    device: live.device,
                    stream: 0,
                };
                self.issuer()
                    .act(Action::AdviseAccessedBy, live.address, live.bytes, target);
            }
            if count < ADVISED_AT_ONCE {
                self.advised.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// What there is to tell at the end.
    pub(crate) fn summary(&self) -> Summary {
        let (phase, counters) = self
            .follower
            .with_patience(|follower| (follower.phase(), follower.counters()))
            .unwrap_or_default();
        let ledger = self.ledger();
        Summary {
            plan: self.path.display().to_string(),
            policy: self.policy.clone(),
            phase,
            counters,
            planned_bytes: ledger.planned_bytes(),
            bound_bytes: ledger.bound_peak_bytes,
            rebound: ledger.rebound,
            undone: ledger.undone,
            populated_bytes: birth::populated_bytes(),
            populations_refused: birth::refused(),
        }
    }
}

#[cfg(test)]
mod tests;

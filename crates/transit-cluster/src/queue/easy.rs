//! EASY backfill (Lifka 1995): the first waiting job gets a reservation at the earliest moment at which
//! what runs now will have left it room; a later job may start only if that moment still holds.
//!
//! Ends are known exactly in a replay, so the reservation is kept to the millisecond. Between two
//! releases nothing can start that could not before, so only new arrivals are looked at then.
#![expect(
    clippy::indexing_slicing,
    reason = "job ids come from the task table, classes and slots from their own tables"
)]

use std::collections::BTreeSet;

use super::greedy::classes;
use crate::cluster::{Free, Part};
use crate::engine::Engine;
use crate::task::Task;
use crate::units::{JobId, Millis};

/// What is known of a demand at this moment.
#[derive(Clone)]
enum Verdict {
    Unknown,
    /// It fits nowhere, and will not until something is released.
    NoRoom,
    /// It would go here; harmless if the first job keeps its room whatever its time.
    Room {
        racks: u32,
        parts: Vec<Part>,
        harmless: bool,
    },
}

/// The reservation of the first job.
struct Reservation {
    head: JobId,
    at: Millis,
    /// What is free then.
    free: Free,
}

/// Waiting jobs in order, with the reservation of the first.
pub struct Easy {
    waiting: BTreeSet<JobId>,
    depth: usize,
    class: Vec<u32>,
    verdicts: Vec<Verdict>,
    reservation: Option<Reservation>,
    /// Jobs that arrived since the last pass.
    fresh: Vec<JobId>,
}

impl Easy {
    pub(super) fn new(tasks: &[Task], depth: u32) -> Self {
        let (demands, class) = classes(tasks);
        Self {
            waiting: BTreeSet::new(),
            depth: depth as usize,
            class,
            verdicts: vec![Verdict::Unknown; demands.len()],
            reservation: None,
            fresh: Vec::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn arrive(&mut self, job: JobId) {
        self.waiting.insert(job);
        if self.waiting.len() <= self.depth.saturating_add(1) {
            self.fresh.push(job);
        }
    }

    pub(super) fn schedule(&mut self, engine: &mut Engine<'_>) {
        if engine.released {
            self.reservation = None;
        }
        while let Some(&head) = self.waiting.first() {
            let reserved = self.reservation.as_ref().is_some_and(|r| r.head == head);
            if reserved || !engine.try_start(head) {
                break;
            }
            self.waiting.pop_first();
            self.reservation = None;
        }
        self.backfill(engine);
        self.fresh.clear();
    }

    fn backfill(&mut self, engine: &mut Engine<'_>) {
        let Some(&head) = self.waiting.first() else {
            return;
        };
        let kept = self.reservation.take().filter(|r| r.head == head);
        let candidates: Vec<JobId> = if kept.is_some() {
            std::mem::take(&mut self.fresh)
        } else {
            let behind = self.waiting.iter().skip(1);
            behind.take(self.depth).copied().collect()
        };
        let full = engine.free.gpus() == 0;
        if candidates.is_empty() || full {
            // Without candidates a reservation is only worth its keep if there is one already.
            self.reservation = kept;
            return;
        }
        let mut reservation = kept.unwrap_or_else(|| reserve(engine, head));
        self.verdicts.fill(Verdict::Unknown);
        for job in candidates {
            if job != head && self.start_if_harmless(engine, job, &mut reservation) {
                self.waiting.remove(&job);
            }
        }
        self.reservation = Some(reservation);
    }

    fn start_if_harmless(
        &mut self,
        engine: &mut Engine<'_>,
        job: JobId,
        reservation: &mut Reservation,
    ) -> bool {
        let verdict = &mut self.verdicts[self.class[job.index()] as usize];
        if matches!(verdict, Verdict::Unknown) {
            *verdict = judge(engine, job, reservation);
        }
        let Verdict::Room {
            racks,
            parts,
            harmless,
        } = verdict
        else {
            return false;
        };
        let racks = *racks;
        let time = engine.time(job, racks);
        let over_in_time = engine.now + time <= reservation.at;
        if !over_in_time && !*harmless {
            return false;
        }
        let parts = std::mem::take(parts);
        engine.start(job, &parts, racks, time);
        if !over_in_time {
            for &part in &parts {
                reservation.free.take(part);
            }
        }
        for verdict in &mut self.verdicts {
            if matches!(verdict, Verdict::Room { .. }) {
                *verdict = Verdict::Unknown;
            }
        }
        true
    }
}

/// When the first job can start if nothing else does, and what is free then.
fn reserve(engine: &Engine<'_>, head: JobId) -> Reservation {
    let demand = engine.tasks[head.index()].demand;
    let gpus = engine.free.shape().gpus_per_node;
    let mut free = engine.free.clone();
    let mut repairs = engine.failures.repairs().peekable();
    let mut at = engine.now;
    for &(end, slot) in &engine.ends {
        while let Some((back, node)) = repairs.next_if(|&(back, _)| back < end) {
            if back > at && free.fits(demand) {
                return Reservation { head, at, free };
            }
            at = back;
            free.give(Part { node, gpus });
        }
        if end > at && free.fits(demand) {
            break;
        }
        at = end;
        for &part in &engine.slots[slot as usize].parts {
            free.give(part);
        }
    }
    for (back, node) in repairs {
        if free.fits(demand) {
            break;
        }
        at = back;
        free.give(Part { node, gpus });
    }
    Reservation { head, at, free }
}

fn judge(engine: &mut Engine<'_>, job: JobId, reservation: &Reservation) -> Verdict {
    let head = engine.tasks[reservation.head.index()].demand;
    let demand = engine.tasks[job.index()].demand;
    let Some((racks, parts)) = engine.place(demand) else {
        return Verdict::NoRoom;
    };
    let mut then = reservation.free.clone();
    for &part in parts {
        then.take(part);
    }
    Verdict::Room {
        racks,
        parts: parts.to_vec(),
        harmless: then.fits(head),
    }
}

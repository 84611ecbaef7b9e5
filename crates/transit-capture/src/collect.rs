//! Reads CUPTI's buffers, tells the emulated card what moved, says which op a record belongs to
//! where that is known, and queues the records for the writer. Settling threads and the writer
//! thread share it; each holds it only while it reads, never over a driver call.

use std::collections::{HashMap, VecDeque};

use transit_format::ids::{AllocId, OpSeq};
use transit_hook::card::CHUNK_BYTES;
use transit_hook::{Chunk, EmulatedCard, ledger};

use crate::clock::Clock;
use crate::cupti::{Counter, Paging, Record, Session};
use crate::paging;

/// Settled ops remembered for records that come late.
const SETTLED: usize = 256;
/// Records queued for the writer; more are dropped and counted.
const MOST_QUEUED: usize = 1 << 21;
/// Device times are known to within this.
const CLOCK_ERROR_NS: u64 = 20_000;

/// A record with the op it is known to belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collected {
    pub(crate) record: Record,
    pub(crate) op: Option<OpSeq>,
}

#[derive(Clone, Copy, Debug)]
struct Settled {
    op: OpSeq,
    begin_ns: u64,
    end_ns: u64,
}

/// Base address and size of a tracked allocation.
pub(crate) type Extent = (u64, u64);

/// Records between CUPTI and the writer.
#[derive(Debug)]
pub(crate) struct Collector {
    clock: Clock,
    queue_wanted: bool,
    queue: Vec<Collected>,
    dropped: u64,
    settled: VecDeque<Settled>,
    /// One emulated card per device.
    cards: HashMap<u32, EmulatedCard>,
    card_bytes: Option<u64>,
    extents: HashMap<AllocId, Extent>,
}

impl Collector {
    /// `queue_wanted`: somebody will take the queue.
    pub(crate) fn new(clock: Clock, card_bytes: Option<u64>, queue_wanted: bool) -> Self {
        Self {
            clock,
            queue_wanted,
            queue: Vec::new(),
            dropped: 0,
            settled: VecDeque::new(),
            cards: HashMap::new(),
            card_bytes,
            extents: HashMap::new(),
        }
    }

    /// Reads all completed buffers.
    pub(crate) fn read(&mut self, session: &Session) {
        let from = self.queue.len();
        session.drain(&mut |record| {
            if self.queue.len() < MOST_QUEUED {
                self.queue.push(Collected { record, op: None });
            } else {
                self.dropped += 1;
            }
        });
        if self.card_bytes.is_some() {
            self.feed(from);
        }
        if !self.queue_wanted {
            self.queue.clear();
        }
    }

    /// Attributes the records from `from` on and tells the cards what moved, in order of time.
    fn feed(&mut self, from: usize) {
        let mut moved: Vec<Paging> = Vec::new();
        let mut fresh = self.queue.split_off(from.min(self.queue.len()));
        for collected in &mut fresh {
            if let Record::Paging(event) = collected.record {
                collected.op = self.settled_at(self.clock.time(event.start).0);
                moved.push(event);
            }
        }
        self.queue.append(&mut fresh);
        moved.sort_by_key(|event| event.start);
        for event in &moved {
            self.move_chunks(event);
        }
    }

    fn settled_at(&self, at_ns: u64) -> Option<OpSeq> {
        let recent = self.settled.iter().rev();
        recent
            .filter(|settled| settled.begin_ns <= at_ns.saturating_add(CLOCK_ERROR_NS))
            .find(|settled| at_ns <= settled.end_ns.saturating_add(CLOCK_ERROR_NS))
            .map(|settled| settled.op)
    }

    fn move_chunks(&mut self, event: &Paging) {
        let leaves = match event.counter {
            Counter::HtoD | Counter::DtoD => false,
            // Our own evictions (cause 1, a prefetch call) have left the model already.
            Counter::DtoH if event.flags != 1 => true,
            _ => return,
        };
        let mut address = event.address;
        let end = event.address.saturating_add(event.value);
        while address < end {
            let chunk_end = (address / CHUNK_BYTES + 1) * CHUNK_BYTES;
            let whole = address.is_multiple_of(CHUNK_BYTES) && end >= chunk_end;
            if let Some(found) = ledger::find(address) {
                let index = chunk_index(found.base, address);
                self.allocated(found.alloc, (found.base, found.bytes));
                let card = self.card(paging::device(event));
                if !leaves {
                    card.migrated_in(found.alloc, index);
                } else if whole {
                    card.migrated_out(found.alloc, index);
                }
            }
            address = chunk_end;
        }
    }

    fn card(&mut self, device: u32) -> &mut EmulatedCard {
        let bytes = self.card_bytes.unwrap_or(u64::MAX);
        self.cards
            .entry(device)
            .or_insert_with(|| EmulatedCard::new(bytes))
    }

    /// An op was issued at `begin_ns` (trace time) and will be settled: what moves from then on
    /// is its doing, until [`Self::settle_ends`].
    pub(crate) fn settle_begins(&mut self, op: OpSeq, begin_ns: u64) {
        if self.settled.len() == SETTLED {
            self.settled.pop_front();
        }
        self.settled.push_back(Settled {
            op,
            begin_ns,
            end_ns: u64::MAX / 2,
        });
    }

    /// The op is settled, evictions included.
    pub(crate) fn settle_ends(&mut self, op: OpSeq) {
        let now_ns = self.clock.now().0;
        if let Some(settled) = self
            .settled
            .iter_mut()
            .rev()
            .find(|settled| settled.op == op)
        {
            settled.end_ns = now_ns;
        }
    }

    /// Chunks of `device` over the limit, oldest first, as address and size. The card holds
    /// converted memory beside `unconverted_bytes` of other device memory.
    pub(crate) fn evictions(&mut self, device: u32, unconverted_bytes: u64) -> Vec<Extent> {
        let Some(limit) = self.card_bytes else {
            return Vec::new();
        };
        let card = self.card(device);
        card.set_capacity(limit.saturating_sub(unconverted_bytes));
        let chunks = card.take_evictions();
        chunks
            .iter()
            .filter_map(|chunk| self.extent(*chunk))
            .collect()
    }

    /// The driver refused to move these: they are on the card of `device` after all.
    pub(crate) fn still_there(&mut self, device: u32, extents: &[Extent]) {
        for &(address, _) in extents {
            if let Some(found) = ledger::find(address) {
                let index = chunk_index(found.base, address);
                self.card(device).migrated_in(found.alloc, index);
            }
        }
    }

    /// Removes the chunks of `device` for which `keep` is false and returns where they lie.
    pub(crate) fn remove_unless(
        &mut self,
        device: u32,
        keep: &dyn Fn(Chunk) -> bool,
    ) -> Vec<Extent> {
        let Some(card) = self.cards.get_mut(&device) else {
            return Vec::new();
        };
        let gone: Vec<Chunk> = card
            .resident()
            .into_iter()
            .filter(|chunk| !keep(*chunk))
            .collect();
        for chunk in &gone {
            card.migrated_out(chunk.alloc, chunk.index);
        }
        gone.iter()
            .filter_map(|chunk| self.extent(*chunk))
            .collect()
    }

    /// Chunks on the card of `device`.
    pub(crate) fn resident(&self, device: u32) -> Vec<Chunk> {
        self.cards
            .get(&device)
            .map(EmulatedCard::resident)
            .unwrap_or_default()
    }

    fn extent(&self, chunk: Chunk) -> Option<Extent> {
        let (base, bytes) = *self.extents.get(&chunk.alloc)?;
        let from = (base / CHUNK_BYTES + u64::from(chunk.index)) * CHUNK_BYTES;
        let to = (from + CHUNK_BYTES).min(base.saturating_add(bytes));
        let from = from.max(base);
        (from < to).then(|| (from, to - from))
    }

    /// A converted allocation was made.
    pub(crate) fn allocated(&mut self, alloc: AllocId, extent: Extent) {
        self.extents.insert(alloc, extent);
    }

    /// Where the converted allocations lie.
    pub(crate) fn converted(&self) -> Vec<Extent> {
        self.extents.values().copied().collect()
    }

    /// An allocation is about to go.
    pub(crate) fn freed(&mut self, alloc: AllocId) {
        if self.extents.remove(&alloc).is_some() {
            self.cards.values_mut().for_each(|card| card.freed(alloc));
        }
    }

    /// The queued records; the queue is empty then.
    pub(crate) fn take_queue(&mut self, into: &mut Vec<Collected>) {
        into.clear();
        std::mem::swap(&mut self.queue, into);
    }

    /// Records dropped because the writer did not keep up.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Which chunk of an allocation an address of it lies in.
fn chunk_index(base: u64, address: u64) -> u32 {
    u32::try_from(address / CHUNK_BYTES - base / CHUNK_BYTES).unwrap_or(u32::MAX)
}

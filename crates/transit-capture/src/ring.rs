//! One bounded queue of words per thread that launches work: the launch path writes into its own
//! ring without a lock or an allocation, the writer thread reads all of them. A full ring never
//! blocks: the op is dropped and counted.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Words in a ring (1 MiB): several thousand ops, far more than a thread issues between two
/// visits of the writer.
const RING_WORDS: usize = 1 << 17;

/// Single producer, single consumer. Positions only grow; the slot is the position modulo size.
#[derive(Debug)]
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
    /// Next position to read; written by the consumer only.
    head: AtomicUsize,
    /// Next position to write; written by the producer only.
    tail: AtomicUsize,
    dropped: AtomicU64,
    /// The producing thread has ended.
    orphaned: AtomicBool,
}

impl Ring {
    /// `words` must be a power of two.
    pub(crate) fn new(words: usize) -> Self {
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            orphaned: AtomicBool::new(false),
        }
    }

    fn slot(&self, position: usize) -> Option<&AtomicU64> {
        self.words.get(position & (self.words.len() - 1))
    }

    /// Room for a message of at most `words` words, or `None` (counted) if the ring is full.
    #[inline]
    pub(crate) fn reserve(&self, words: usize) -> Option<Reservation<'_>> {
        let tail = self.tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(self.head.load(Ordering::Acquire));
        if words > self.words.len() - used {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Reservation {
            words: &self.words,
            tail: &self.tail,
            first: tail,
            next: tail.wrapping_add(1),
        })
    }

    /// The word at the reader's position plus `ahead`, if the producer has published it.
    fn peek(&self, ahead: usize) -> Option<u64> {
        let position = self.head.load(Ordering::Relaxed).wrapping_add(ahead);
        let published = self.tail.load(Ordering::Acquire).wrapping_sub(position);
        if published == 0 || published > self.words.len() {
            return None;
        }
        self.slot(position).map(|word| word.load(Ordering::Relaxed))
    }

    /// Takes the oldest message into `into`; `length` reads the message's length in words from
    /// its first word. False if the ring is empty.
    pub(crate) fn take(&self, into: &mut Vec<u64>, length: impl Fn(u64) -> usize) -> bool {
        into.clear();
        let Some(first) = self.peek(0) else {
            return false;
        };
        let words = length(first).max(1);
        into.extend((0..words).map_while(|ahead| self.peek(ahead)));
        let head = self.head.load(Ordering::Relaxed);
        self.head.store(head.wrapping_add(words), Ordering::Release);
        into.len() == words
    }

    fn finished(&self) -> bool {
        self.orphaned.load(Ordering::Acquire) && self.peek(0).is_none()
    }
}

/// Words being written; they appear to the reader at [`Reservation::publish`], all at once.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    words: &'a [AtomicU64],
    tail: &'a AtomicUsize,
    first: usize,
    next: usize,
}

impl Reservation<'_> {
    #[inline]
    fn store(&self, position: usize, word: u64) {
        if let Some(slot) = self.words.get(position & (self.words.len() - 1)) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    /// Writes the next word behind the first.
    #[inline]
    pub(crate) fn put(&mut self, word: u64) {
        self.store(self.next, word);
        self.next = self.next.wrapping_add(1);
    }

    /// Hands the message to the reader; `first` makes its first word of its length in words.
    #[inline]
    pub(crate) fn publish(self, first: impl FnOnce(usize) -> u64) {
        self.store(self.first, first(self.next.wrapping_sub(self.first)));
        self.tail.store(self.next, Ordering::Release);
    }
}

/// All rings of the process.
#[derive(Debug)]
pub(crate) struct Rings {
    list: Mutex<Vec<Arc<Ring>>>,
    /// Drops of rings that are gone.
    dropped_before: AtomicU64,
}

/// Marks a thread's ring when the thread ends, so that the writer can let go of it.
struct Owned(Arc<Ring>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.orphaned.store(true, Ordering::Release);
    }
}

thread_local! {
    static OWN: OnceCell<Owned> = const { OnceCell::new() };
}

impl Rings {
    pub(crate) const fn new() -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            dropped_before: AtomicU64::new(0),
        }
    }

    /// Runs `work` with this thread's ring, which is made and registered at the thread's first
    /// call. Nothing happens on a thread that is being torn down.
    #[inline]
    pub(crate) fn with_own(&self, work: impl FnOnce(&Ring)) {
        let _ = OWN.try_with(|own| {
            work(&own.get_or_init(|| Owned(self.register())).0);
        });
    }

    #[cold]
    fn register(&self) -> Arc<Ring> {
        let ring = Arc::new(Ring::new(RING_WORDS));
        self.list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&ring));
        ring
    }

    /// The rings there are now; those of ended threads are listed a last time once empty.
    pub(crate) fn snapshot(&self, into: &mut Vec<Arc<Ring>>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        into.clear();
        into.extend(list.iter().cloned());
        list.retain(|ring| {
            let finished = ring.finished();
            if finished {
                let dropped = ring.dropped.load(Ordering::Relaxed);
                self.dropped_before.fetch_add(dropped, Ordering::Relaxed);
            }
            !finished
        });
    }

    /// Messages dropped so far because a ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let live: u64 = list
            .iter()
            .map(|ring| ring.dropped.load(Ordering::Relaxed))
            .sum();
        live + self.dropped_before.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ring: &Ring, words: &[u64]) -> bool {
        let Some(mut room) = ring.reserve(words.len()) else {
            return false;
        };
        words.iter().skip(1).for_each(|&word| room.put(word));
        room.publish(|length| {
            assert_eq!(length, words.len());
            words[0]
        });
        true
    }

    fn first_is_length(word: u64) -> usize {
        usize::try_from(word).unwrap()
    }

    #[test]
    fn a_full_ring_drops_and_counts_and_what_it_holds_stays_whole() {
        let ring = Ring::new(8);
        assert!(push(&ring, &[3, 10, 11]));
        assert!(push(&ring, &[3, 20, 21]));
        assert!(!push(&ring, &[3, 30, 31]));
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 1);
        let mut words = Vec::new();
        assert!(ring.take(&mut words, first_is_length));
        assert_eq!(words, [3, 10, 11]);
        assert!(push(&ring, &[4, 40, 41, 42]), "room again, across the end");
        assert!(ring.take(&mut words, first_is_length));
        assert!(ring.take(&mut words, first_is_length));
        assert_eq!(words, [4, 40, 41, 42]);
        assert!(!ring.take(&mut words, first_is_length));
    }

    #[test]
    fn a_reader_beside_a_writer_sees_every_message_in_order() {
        const MESSAGES: u64 = 100_000;
        let ring = Ring::new(1 << 10);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..MESSAGES {
                    while !push(&ring, &[3, n, n * 7]) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut words = Vec::new();
            let mut expected = 0;
            while expected < MESSAGES {
                if ring.take(&mut words, first_is_length) {
                    assert_eq!(words, [3, expected, expected * 7]);
                    expected += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
    }

    #[test]
    fn a_thread_that_ended_is_drained_and_then_forgotten() {
        static RINGS: Rings = Rings::new();
        std::thread::spawn(|| RINGS.with_own(|ring| assert!(push(ring, &[2, 5]))))
            .join()
            .unwrap();
        let mut rings = Vec::new();
        RINGS.snapshot(&mut rings);
        assert_eq!(rings.len(), 1);
        let mut words = Vec::new();
        assert!(rings[0].take(&mut words, first_is_length));
        RINGS.snapshot(&mut rings);
        RINGS.snapshot(&mut rings);
        assert!(rings.is_empty());
    }
}

//! Tensor maps: 128 opaque bytes that a kernel gets by value and that stand for an address. What
//! they look like is the driver's business, so the address of each is kept by a hash of its bytes
//! when it is encoded, in a table of fixed size where the newest wins.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Size of a `CUtensorMap`, 128 bytes.
pub(crate) const WORDS: usize = 16;
/// Maps remembered; one that was pushed out costs its kernel a pointer in the trace.
const SLOTS: usize = 1 << 12;

struct Slot {
    /// 0 while it is empty or written.
    hash: AtomicU64,
    address: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        hash: AtomicU64::new(0),
        address: AtomicU64::new(0),
    }
}; SLOTS];
/// Any map was encoded: most jobs have none, and their launches look no further.
static ANY: AtomicBool = AtomicBool::new(false);

/// # Safety
/// `map` points to a whole map, at any alignment.
unsafe fn hash_of(map: *const u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for place in 0..WORDS {
        // SAFETY: the word lies within the map.
        let word = unsafe { map.wrapping_add(place).read_unaligned() };
        hash = (hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
    hash.max(1)
}

fn slot_of(hash: u64) -> Option<&'static Slot> {
    let index = usize::try_from(hash >> 32).ok()? % SLOTS;
    TABLE.get(index)
}

/// A map was encoded for `address`, or given that one.
///
/// # Safety
/// `map` points to the whole map.
pub(crate) unsafe fn encoded(map: *const u64, address: u64) {
    static WRITERS: Mutex<()> = Mutex::new(());
    // SAFETY: passed on.
    let hash = unsafe { hash_of(map) };
    let Some(slot) = slot_of(hash) else { return };
    let _one_at_a_time = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    slot.hash.store(0, Ordering::SeqCst);
    slot.address.store(address, Ordering::SeqCst);
    slot.hash.store(hash, Ordering::SeqCst);
    ANY.store(true, Ordering::Release);
}

/// The address a map stands for, if it was encoded in this process and not pushed out since.
///
/// # Safety
/// `map` points to [`WORDS`] readable words.
#[inline]
pub(crate) unsafe fn address_of(map: *const u64) -> Option<u64> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: passed on.
    let hash = unsafe { hash_of(map) };
    let slot = slot_of(hash)?;
    let before = slot.hash.load(Ordering::SeqCst);
    let address = slot.address.load(Ordering::SeqCst);
    let after = slot.hash.load(Ordering::SeqCst);
    (before == hash && after == hash).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_known_by_its_bytes_wherever_it_is_copied() {
        let map: [u64; 16] = core::array::from_fn(|word| word as u64 * 0x1234_5678_9abc);
        let mut other = map;
        other[9] ^= 1;
        // SAFETY: each is a whole map.
        let known = |map: &[u64; 16]| unsafe { address_of(map.as_ptr()) };
        // SAFETY: as above.
        let learn = |map: &[u64; 16], address| unsafe { encoded(map.as_ptr(), address) };
        assert_eq!(known(&map), None);
        learn(&map, 0x7f00_0000_0000);
        let copy = map;
        assert_eq!(known(&copy), Some(0x7f00_0000_0000));
        assert_eq!(known(&other), None);
        learn(&map, 0x7f00_0000_4000);
        assert_eq!(known(&copy), Some(0x7f00_0000_4000));
    }
}

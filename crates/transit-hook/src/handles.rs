//! Driver handles (functions, streams, executable graphs) to what we know about them: look-ups
//! without a lock, edits by one thread at a time. Values live for ever unless retired, and retired
//! ones are kept until many more have followed, so that a reader never holds a dead one.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Places looked at before giving up.
const MOST_PROBES: usize = 128;
/// Retired values kept back.
const GRAVEYARD: usize = 256;
/// A key whose value was removed: probes go on past it.
const REMOVED: usize = usize::MAX;

struct Place<T> {
    key: AtomicUsize,
    value: AtomicPtr<T>,
}

impl<T> Place<T> {
    #[inline]
    fn value(&self) -> Option<&'static T> {
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: non-null values come from `insert` and are not dropped before `GRAVEYARD` more
        // were retired, long after a look-up has ended.
        unsafe { value.as_ref() }
    }
}

/// A map from non-zero handles.
/// Made to be a `static`: its places take memory only once they are touched.
pub(crate) struct HandleMap<T: 'static, const PLACES: usize> {
    places: [Place<T>; PLACES],
    edits: Mutex<VecDeque<Box<T>>>,
}

impl<T, const PLACES: usize> HandleMap<T, PLACES> {
    /// Room for `PLACES` handles, a power of two.
    pub(crate) const fn new() -> Self {
        const { assert!(PLACES.is_power_of_two()) };
        Self {
            places: [const {
                Place {
                    key: AtomicUsize::new(0),
                    value: AtomicPtr::new(ptr::null_mut()),
                }
            }; PLACES],
            edits: Mutex::new(VecDeque::new()),
        }
    }

    #[inline]
    fn probes(&self, key: usize) -> impl Iterator<Item = &Place<T>> {
        let first = (key >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (0..MOST_PROBES).filter_map(move |step| self.places.get((first + step) & (PLACES - 1)))
    }

    /// The value of a handle.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&'static T> {
        let place = self.probes(key).next()?;
        if place.key.load(Ordering::Acquire) == key {
            return place.value();
        }
        self.get_farther(key)
    }

    #[inline(never)]
    fn get_farther(&self, key: usize) -> Option<&'static T> {
        for place in self.probes(key) {
            let found = place.key.load(Ordering::Acquire);
            if found == key {
                return place.value();
            }
            if found == 0 {
                return None;
            }
        }
        None
    }

    /// Sets the value of a handle; a value it had is retired. `None` if there is no room.
    pub(crate) fn insert(&self, key: usize, value: T) -> Option<&'static T> {
        if key == 0 || key == REMOVED {
            return None;
        }
        let mut retired = self.edits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut target = None;
        for place in self.probes(key) {
            let found = place.key.load(Ordering::Relaxed);
            if found == key {
                target = Some(place);
                break;
            }
            if found == REMOVED && target.is_none() {
                target = Some(place);
            }
            if found == 0 {
                target = target.or(Some(place));
                break;
            }
        }
        let place = target?;
        let fresh = Box::into_raw(Box::new(value));
        let old = place.value.swap(fresh, Ordering::AcqRel);
        place.key.store(key, Ordering::Release);
        bury(&mut retired, old);
        // SAFETY: `fresh` was made above and stays alive as described in `get`.
        unsafe { fresh.as_ref() }
    }

    /// Forgets every handle whose value is `gone`.
    pub(crate) fn remove_where(&self, gone: impl Fn(&T) -> bool) {
        for place in &self.places {
            let key = place.key.load(Ordering::Acquire);
            if key != 0 && key != REMOVED && self.get(key).is_some_and(&gone) {
                self.remove(key);
            }
        }
    }

    /// Forgets a handle (it was destroyed).
    pub(crate) fn remove(&self, key: usize) {
        let mut retired = self.edits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = self
            .probes(key)
            .find(|place| place.key.load(Ordering::Relaxed) == key)
        else {
            return;
        };
        place.key.store(REMOVED, Ordering::Release);
        let old = place.value.swap(ptr::null_mut(), Ordering::AcqRel);
        bury(&mut retired, old);
    }
}

fn bury<T>(retired: &mut VecDeque<Box<T>>, old: *mut T) {
    if old.is_null() {
        return;
    }
    // SAFETY: the pointer came from `Box::into_raw` in `insert` and was just unlinked, once.
    retired.push_back(unsafe { Box::from_raw(old) });
    if retired.len() > GRAVEYARD {
        retired.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_given_again_has_the_new_value() {
        let map = HandleMap::<_, 64>::new();
        map.insert(0x10, 'a');
        map.insert(0x20, 'b');
        assert_eq!(map.get(0x10), Some(&'a'));
        map.remove(0x10);
        assert_eq!(map.get(0x10), None);
        assert_eq!(map.get(0x20), Some(&'b'));
        map.insert(0x10, 'c');
        assert_eq!(map.get(0x10), Some(&'c'));
        assert!(map.insert(0, 'x').is_none());
    }

    #[test]
    fn a_full_map_refuses_and_still_answers() {
        let map = HandleMap::<_, 16>::new();
        let kept: Vec<usize> = (1..40)
            .map(|n| n * 64)
            .filter(|key| map.insert(*key, *key).is_some())
            .collect();
        assert_eq!(kept.len(), 16);
        assert!(kept.iter().all(|key| map.get(*key) == Some(key)));
    }

    #[test]
    fn coming_and_going_for_ever_needs_no_more_room() {
        let map = HandleMap::<_, 16>::new();
        for key in 1..10_000_usize {
            assert!(map.insert(key * 8, key).is_some(), "{key}");
            assert_eq!(map.get(key * 8), Some(&key));
            map.remove(key * 8);
        }
    }
}

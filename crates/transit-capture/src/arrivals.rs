//! Which of CUPTI's records can be relied on to have no older one still to come. Correlation ids are
//! given out one by one as work is called (six launches in a row had 1 to 6, H200, CUPTI 13.0),
//! while buffers come in any order and late where the machine is busy. So a gap in the ids seen so
//! far is waited for, for a few flushes: some ids may be of calls that CUPTI reports nothing of.

use std::collections::BTreeMap;

/// Flushes that a gap is waited for beyond the one after its later side came.
const PATIENCE: u64 = 2;

/// Ids beyond a gap for which it is given up at once: a job that launches so fast must not be held up.
const MOST_AHEAD: usize = 1 << 16;

/// The correlation ids seen, over all streams.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// All up to this one have come or are given up.
    whole: Option<u32>,
    /// Those beyond the first gap, with the flush before which they came.
    ahead: BTreeMap<u32, u64>,
}

impl Arrivals {
    /// A record with this id came before flush number `flush`.
    pub(crate) fn came(&mut self, id: u32, flush: u64) {
        if self.whole.is_none_or(|whole| id > whole) {
            self.ahead.entry(id).or_insert(flush);
            self.close_up();
            if self.ahead.len() > MOST_AHEAD {
                self.whole = self.ahead.first_key_value().map(|(&first, _)| first);
                self.close_up();
            }
        }
    }

    /// Flush number `flush` was made: gives up gaps that were waited for long enough.
    pub(crate) fn flushed(&mut self, flush: u64) {
        while let Some((&id, &came)) = self.ahead.first_key_value() {
            let patience = if self.whole.is_some() { PATIENCE } else { 0 };
            if came + patience >= flush {
                break;
            }
            self.whole = Some(id);
            self.close_up();
        }
    }

    fn close_up(&mut self) {
        while let Some(whole) = self.whole
            && let Some(first) = self.ahead.first_entry()
            && *first.key() <= whole.saturating_add(1)
        {
            self.whole = Some(whole.max(*first.key()));
            first.remove();
        }
    }

    /// Whether no record with an id before this one is still waited for.
    pub(crate) fn whole(&self, id: u32) -> bool {
        self.whole.is_some_and(|whole| id <= whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_waited_for_and_then_given_up() {
        let mut arrivals = Arrivals::default();
        arrivals.came(12, 1);
        arrivals.came(10, 1);
        assert!(!arrivals.whole(10), "there may be older ones");
        arrivals.flushed(2);
        assert!(arrivals.whole(10) && !arrivals.whole(12));
        arrivals.flushed(3);
        assert!(!arrivals.whole(12));
        arrivals.flushed(4);
        assert!(arrivals.whole(12));
        arrivals.came(13, 4);
        assert!(arrivals.whole(13), "next to what is whole");
        arrivals.came(15, 4);
        assert!(!arrivals.whole(15));
        arrivals.came(14, 5);
        assert!(arrivals.whole(15), "the gap is closed");
        arrivals.came(20, 5);
        arrivals.flushed(7);
        assert!(!arrivals.whole(20));
        arrivals.flushed(8);
        assert!(arrivals.whole(20), "nobody waits for ever");
        (0..100_000).for_each(|id| arrivals.came(100 + 2 * id, 8));
        assert!(arrivals.whole(100 + 2 * 20_000), "nor holds everything");
    }
}

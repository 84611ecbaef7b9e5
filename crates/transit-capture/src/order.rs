//! Puts numbered things back in order: two threads may be given numbers 4 and 5 and tell 5 first.

use std::collections::BTreeMap;

/// Holds back what came too early.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self {
            next: 0,
            early: BTreeMap::new(),
        }
    }
}

impl<T> InOrder<T> {
    /// Takes a thing in. False if its number was given up already; the thing is dropped then.
    pub(crate) fn put(&mut self, number: u64, thing: T) -> bool {
        let in_time = number >= self.next;
        if in_time {
            self.early.insert(number, thing);
        }
        in_time
    }

    /// The thing whose turn it is.
    pub(crate) fn take(&mut self) -> Option<T> {
        let thing = self.early.remove(&self.next)?;
        self.next += 1;
        Some(thing)
    }

    /// Gives up on missing numbers before the first thing held; the count of them.
    pub(crate) fn skip_gap(&mut self) -> u64 {
        let Some((&first, _)) = self.early.first_key_value() else {
            return 0;
        };
        let missing = first - self.next;
        self.next = first;
        missing
    }

    /// Starts at `number`; what came before is dropped.
    pub(crate) fn start_at(&mut self, number: u64) {
        self.next = number;
        self.early = self.early.split_off(&number);
    }

    /// The number whose turn it is.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Things held back.
    pub(crate) fn held(&self) -> usize {
        self.early.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_out_in_order_and_gaps_can_be_given_up() {
        let mut order = InOrder::default();
        order.put(1, 'b');
        assert_eq!(order.take(), None);
        order.put(0, 'a');
        assert_eq!(
            (order.take(), order.take(), order.take()),
            (Some('a'), Some('b'), None)
        );
        order.put(5, 'f');
        assert_eq!((order.held(), order.skip_gap()), (1, 3));
        assert_eq!(order.take(), Some('f'));
        order.put(2, 'x');
        assert_eq!((order.held(), order.next()), (0, 6));
    }
}

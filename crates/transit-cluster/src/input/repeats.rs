//! Job ids that occur more than once: a requeued job (`sacct --duplicates`), or a file put together from
//! overlapping pieces, which simulates a job twice. Eight bytes per kept row.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// The ids of kept rows.
#[derive(Debug, Default)]
pub struct Ids {
    hashes: Vec<u64>,
}

impl Ids {
    /// Another id.
    pub fn push(&mut self, id: &str) {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        self.hashes.push(hasher.hash_one(id));
    }

    /// Rows whose id an earlier row has.
    #[must_use]
    pub fn repeated(mut self) -> u64 {
        let rows = self.hashes.len();
        self.hashes.sort_unstable();
        self.hashes.dedup();
        (rows - self.hashes.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_after_the_first_of_an_id_is_a_repeat() {
        let mut ids = Ids::default();
        for id in ["7", "8", "7", "7_1", "7"] {
            ids.push(id);
        }
        assert_eq!(ids.repeated(), 2);
    }
}

//! How a pointer in a list names one of the block's distinct pointers: a small number for what a
//! job is likely to use next.
//!
//! ```text
//! 0          the pointer that followed the one before it the last time
//! 1          the next new pointer
//! 2..257     the pointer used 0..255 distinct pointers ago
//! 258..      older: 258 + pointers seen so far less its number
//! ```
//!
//! On a recorded training step this takes 5 bits a pointer where its plain number takes 10.
//! Blocks without the flag for it (written before it existed) hold pointers seen so far less the
//! number, 0 for the next new one.

/// Pointers whose last use is remembered in order: bounds the work per pointer.
const RECENT: usize = 256;
/// First code of an older pointer.
const OLDER: u64 = 2 + RECENT as u64;

/// What both sides know after each pointer.
#[derive(Debug, Default)]
pub(super) struct References {
    /// By pointer: the one that followed it last, plus 1 (0: none yet).
    followers: Vec<u32>,
    /// Last used pointers, the newest at the end.
    recent: Vec<u32>,
    before: usize,
}

impl References {
    /// The code of a pointer. New ones must come as the number next in order.
    pub(super) fn code(&mut self, number: u32) -> u64 {
        let seen = self.followers.len();
        let place = self.recent.iter().rposition(|recent| *recent == number);
        let code = if number as usize == seen {
            1
        } else if self.follower() == Some(number) {
            0
        } else if let Some(place) = place {
            2 + (self.recent.len() - 1 - place) as u64
        } else {
            OLDER + seen as u64 - u64::from(number)
        };
        self.note(number, place);
        code
    }

    /// The pointer of a code, `None` if there is none.
    pub(super) fn number(&mut self, code: u64) -> Option<u32> {
        let seen = self.followers.len() as u64;
        // Where it lies in `recent` follows from the code, but for followers.
        let (number, place) = match code {
            0 => {
                let number = self.follower()?;
                (
                    number,
                    self.recent.iter().rposition(|recent| *recent == number),
                )
            }
            1 => (u32::try_from(seen).ok()?, None),
            2..OLDER => {
                let back = usize::try_from(code - 1).ok()?;
                let place = self.recent.len().checked_sub(back)?;
                (*self.recent.get(place)?, Some(place))
            }
            _ => (u32::try_from(seen.checked_sub(code - OLDER)?).ok()?, None),
        };
        if code != 1 && u64::from(number) >= seen {
            return None;
        }
        self.note(number, place);
        Some(number)
    }

    fn follower(&self) -> Option<u32> {
        self.followers.get(self.before)?.checked_sub(1)
    }

    fn note(&mut self, number: u32, place: Option<usize>) {
        if let Some(follower) = self.followers.get_mut(self.before) {
            *follower = number + 1;
        }
        if number as usize == self.followers.len() {
            self.followers.push(0);
        }
        if let Some(place) = place {
            self.recent.remove(place);
        } else if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(number);
        self.before = number as usize;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers in order of first use, as an encoder meets them.
    fn in_order(values: &[u32]) -> Vec<u32> {
        let mut known = Vec::new();
        let number = |value: &u32| {
            let at = known.iter().position(|known| known == value);
            let at = at.unwrap_or_else(|| {
                known.push(*value);
                known.len() - 1
            });
            u32::try_from(at).unwrap()
        };
        values.iter().map(number).collect()
    }

    proptest! {
        #[test]
        fn numbers_return(values in prop::collection::vec(0_u32..600, 0..1500)) {
            let numbers = in_order(&values);
            let (mut encoder, mut decoder) = (References::default(), References::default());
            for number in numbers {
                prop_assert_eq!(decoder.number(encoder.code(number)), Some(number));
            }
        }

        #[test]
        fn any_codes_stay_within_what_was_seen(codes in prop::collection::vec(0_u64..700, 0..900)) {
            let mut decoder = References::default();
            for code in codes {
                let seen = decoder.followers.len();
                match decoder.number(code) {
                    Some(number) => prop_assert!((number as usize) < seen + usize::from(code == 1)),
                    None => prop_assert!(code != 1),
                }
            }
            prop_assert_eq!(decoder.number(u64::MAX), None);
        }
    }

    #[test]
    fn a_repeated_sequence_is_all_zeros() {
        let mut references = References::default();
        let mut codes = |numbers: [u32; 4]| numbers.map(|number| references.code(number));
        assert_eq!(codes([0, 1, 2, 3]), [1, 1, 1, 1]);
        assert_eq!(codes([0, 1, 2, 3]), [5, 0, 0, 0]);
        assert_eq!(codes([0, 1, 2, 3]), [0, 0, 0, 0]);
    }
}

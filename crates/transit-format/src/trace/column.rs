//! A column: many numbers of one meaning, stored so that zstd finds their regularity.
//!
//! ```text
//! column of n numbers (nothing at all for n = 0)
//!   base    varint            the first number
//!   scale   varint, 1..       common divisor of the others
//!   width   varint, 0..8      bytes per number
//!   planes  byte string       width x (n - 1) bytes: all lowest bytes, then all second bytes, ...
//! ```
//!
//! Signed columns store `number / scale` in zigzag form. Planes keep the noisy low bytes of
//! times apart from the constant high ones, and let a decoder work without a branch per number.

use super::block::Flaw;
use super::coding::{Sink, Source};

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Greatest common divisor of all magnitudes, 1 if all are zero.
fn common_scale(magnitudes: impl Iterator<Item = u64>) -> u64 {
    let mut scale = 0;
    for magnitude in magnitudes {
        // Most numbers of a noisy column end this at once.
        if scale == 1 {
            break;
        }
        scale = gcd(scale, magnitude);
    }
    scale.max(1)
}

/// Number of bytes that hold every value.
fn width_of(values: &[u64]) -> usize {
    let all = values.iter().fold(0, |all, value| all | value);
    (8 - all.leading_zeros() as usize / 8).min(8)
}

fn put_planes(sink: &mut Sink, values: &[u64]) {
    let width = width_of(values);
    let mut planes = Vec::with_capacity(width * values.len());
    for plane in 0..width {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "one byte of the number is meant"
        )]
        planes.extend(values.iter().map(|value| (value >> (8 * plane)) as u8));
    }
    sink.put(width as u64);
    sink.put_striped(&planes, values.len());
}

fn get_planes(source: &mut Source<'_>, out: &mut [u64]) -> Result<(), Flaw> {
    let width = source.get_below(9, "column width")?;
    let planes: &[u8] = source.get()?;
    if planes.len() != width * out.len() {
        return Err(source.flaw(format!(
            "column of {} numbers of {width} bytes holds {} bytes",
            out.len(),
            planes.len()
        )));
    }
    if out.is_empty() {
        return Ok(());
    }
    for (index, plane) in planes.chunks_exact(out.len()).enumerate() {
        for (value, byte) in out.iter_mut().zip(plane) {
            *value |= u64::from(*byte) << (8 * index);
        }
    }
    Ok(())
}

/// Appends a column of unsigned numbers.
pub(super) fn put_unsigned(sink: &mut Sink, values: &[u64]) {
    let Some((base, rest)) = values.split_first() else {
        return;
    };
    let scale = common_scale(rest.iter().copied());
    sink.put(*base);
    sink.put(scale);
    let scaled: Vec<u64> = rest.iter().map(|value| value / scale).collect();
    put_planes(sink, &scaled);
}

/// Reads a column of `count` unsigned numbers.
pub(super) fn get_unsigned(source: &mut Source<'_>, count: usize) -> Result<Vec<u64>, Flaw> {
    let mut values = vec![0; count];
    let Some((base, rest)) = values.split_first_mut() else {
        return Ok(values);
    };
    *base = source.get()?;
    let scale: u64 = source.get()?;
    get_planes(source, rest)?;
    if scale != 1 {
        rest.iter_mut()
            .for_each(|value| *value = value.wrapping_mul(scale));
    }
    Ok(values)
}

/// Appends a column of signed numbers.
pub(super) fn put_signed(sink: &mut Sink, values: &[i64]) {
    let Some((base, rest)) = values.split_first() else {
        return;
    };
    let scale = common_scale(rest.iter().map(|value| value.unsigned_abs()));
    sink.put(*base);
    sink.put(scale);
    let scaled: Vec<u64> = rest
        .iter()
        .map(|value| {
            let magnitude = (value.unsigned_abs() / scale).cast_signed();
            zigzag(if *value < 0 {
                magnitude.wrapping_neg()
            } else {
                magnitude
            })
        })
        .collect();
    put_planes(sink, &scaled);
}

/// Reads a column of `count` signed numbers.
pub(super) fn get_signed(source: &mut Source<'_>, count: usize) -> Result<Vec<i64>, Flaw> {
    let mut values = vec![0; count];
    let Some((base, rest)) = values.split_first_mut() else {
        return Ok(Vec::new());
    };
    let first: i64 = source.get()?;
    let scale: u64 = source.get()?;
    get_planes(source, rest)?;
    *base = zigzag(first);
    let scale = scale.cast_signed();
    let mut values: Vec<i64> = values.into_iter().map(unzigzag).collect();
    if scale != 1 {
        values
            .iter_mut()
            .skip(1)
            .for_each(|value| *value = value.wrapping_mul(scale));
    }
    Ok(values)
}

/// Appends a column of numbers as differences from the number before (the first from 0).
pub(super) fn put_delta(sink: &mut Sink, values: impl Iterator<Item = u64>) {
    let mut before = 0_u64;
    let deltas: Vec<i64> = values
        .map(|value| {
            let delta = value.wrapping_sub(before).cast_signed();
            before = value;
            delta
        })
        .collect();
    put_signed(sink, &deltas);
}

/// Reads what [`put_delta`] wrote.
pub(super) fn get_delta(source: &mut Source<'_>, count: usize) -> Result<Vec<u64>, Flaw> {
    let mut value = 0_u64;
    Ok(get_signed(source, count)?
        .into_iter()
        .map(|delta| {
            value = value.wrapping_add_signed(delta);
            value
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn columns_return_what_was_put(
            unsigned in prop::collection::vec(any::<u64>(), 0..50),
            signed in prop::collection::vec(any::<i64>(), 0..50),
            multiples in prop::collection::vec(0_i64..1000, 0..50),
        ) {
            let mut sink = Sink::default();
            put_unsigned(&mut sink, &unsigned);
            put_signed(&mut sink, &signed);
            put_delta(&mut sink, unsigned.iter().copied());
            let multiples: Vec<i64> = multiples.iter().map(|value| value * 32 - 320).collect();
            put_signed(&mut sink, &multiples);
            let body = sink.finish().unwrap().bytes;
            let mut source = Source::new(&body);
            prop_assert_eq!(&get_unsigned(&mut source, unsigned.len()).unwrap(), &unsigned);
            prop_assert_eq!(get_signed(&mut source, signed.len()).unwrap(), signed);
            prop_assert_eq!(get_delta(&mut source, unsigned.len()).unwrap(), unsigned);
            prop_assert_eq!(get_signed(&mut source, multiples.len()).unwrap(), multiples);
            source.finish().unwrap();
        }
    }

    #[test]
    fn the_smallest_signed_number_survives_scaling() {
        let values = [0, i64::MIN, i64::MIN, 0];
        let mut sink = Sink::default();
        put_signed(&mut sink, &values);
        let body = sink.finish().unwrap().bytes;
        assert_eq!(get_signed(&mut Source::new(&body), 4).unwrap(), values);
    }

    #[test]
    fn a_column_of_another_length_is_refused() {
        let mut sink = Sink::default();
        put_unsigned(&mut sink, &[1, 2, 3]);
        let body = sink.finish().unwrap().bytes;
        assert!(get_unsigned(&mut Source::new(&body), 4).is_err());
        assert!(get_unsigned(&mut Source::new(body.get(..3).unwrap()), 3).is_err());
    }
}

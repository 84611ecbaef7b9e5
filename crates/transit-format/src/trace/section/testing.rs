//! What every section's tests do: return what was put, refuse every shorter body, and survive any
//! bit flip and any bytes without a panic.

use std::fmt::Debug;

use proptest::prelude::*;

use super::super::block::Flaw;
use super::super::coding::{Sink, Source};

/// The body that `put` makes.
pub(super) fn body_of(put: impl Fn(&mut Sink)) -> Vec<u8> {
    let mut sink = Sink::default();
    put(&mut sink);
    sink.finish().unwrap().bytes
}

/// Reads a whole body.
pub(super) fn read_all<T>(
    body: &[u8],
    get: impl Fn(&mut Source<'_>) -> Result<T, Flaw>,
) -> Result<T, Flaw> {
    let mut source = Source::new(body);
    let value = get(&mut source)?;
    source.finish().map(|()| value)
}

/// Everything named above, for a section that holds `value`.
pub(super) fn exercise<T: PartialEq + Debug>(
    value: &T,
    put: impl Fn(&mut Sink),
    get: impl Fn(&mut Source<'_>) -> Result<T, Flaw> + Copy,
) {
    let body = body_of(put);
    assert_eq!(&read_all(&body, get).unwrap(), value);
    for length in 0..body.len() {
        assert!(
            read_all(&body[..length], get).is_err(),
            "accepted {length} of {}",
            body.len()
        );
    }
    let longer = [body.as_slice(), &[0]].concat();
    assert!(read_all(&longer, get).is_err(), "accepted a byte too many");
    for at in 0..body.len() {
        for bit in 0..8 {
            let mut bad = body.clone();
            bad[at] ^= 1 << bit;
            // The block's checksum finds this; here it must only do no harm.
            let _ = read_all(&bad, get);
        }
    }
}

/// Bytes for which no decoder may panic: noise, and small numbers that look like counts.
pub(super) fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(0_u8..9, 0..200),
    ]
}

//! The body of the last block: it shows that the writer closed the file, and how much it wrote.
//!
//! ```text
//! events varint, ops varint
//! ```

use super::super::block::Flaw;
use super::super::coding::{Body, Sink, Source};

/// What the end block says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct EndFacts {
    /// Events handed to the writer.
    pub(in super::super) events: u64,
    /// Ops among them.
    pub(in super::super) ops: u64,
}

/// The body of the end block.
pub(in super::super) fn encode(facts: EndFacts) -> Result<Body, String> {
    let mut sink = Sink::default();
    sink.put((facts.events, facts.ops));
    sink.finish()
}

/// Reads what [`encode`] wrote.
pub(in super::super) fn decode(body: &[u8]) -> Result<EndFacts, Flaw> {
    let mut source = Source::new(body);
    source.enter("end block");
    let (events, ops) = source.get()?;
    source.finish()?;
    Ok(EndFacts { events, ops })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_returns() {
        let facts = EndFacts {
            events: u64::MAX,
            ops: 300,
        };
        let body = encode(facts).unwrap().bytes;
        assert_eq!(decode(&body).unwrap(), facts);
        for length in 0..body.len() {
            assert!(decode(&body[..length]).is_err());
        }
        assert!(decode(&[body.as_slice(), &[0]].concat()).is_err());
    }
}

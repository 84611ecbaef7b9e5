//! The only place that knows bincode: scalars, texts and byte strings in its standard
//! configuration (little-endian, variable-length integers), decoded under a byte limit so that a
//! length in a damaged file can never make us allocate more than a block may hold.

use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};

use super::block::{Flaw, MAX_BODY_BYTES};

type Coding = Configuration<LittleEndian, Varint, Limit<MAX_BODY_BYTES>>;

fn coding() -> Coding {
    config::standard().with_limit::<MAX_BODY_BYTES>()
}

/// Collects the body of a block.
#[derive(Debug, Default)]
pub(super) struct Sink {
    bytes: Vec<u8>,
    seams: Vec<usize>,
    failure: Option<String>,
}

/// A finished body.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// Where bytes of another kind begin. Only a hint for the compressor.
    pub(super) seams: Vec<usize>,
}

impl Sink {
    /// Appends one scalar, text or byte string. A failure is kept for [`Sink::finish`].
    pub(super) fn put<T: bincode::Encode>(&mut self, value: T) {
        if let Err(error) = bincode::encode_into_std_write(value, &mut self.bytes, coding()) {
            self.failure.get_or_insert_with(|| error.to_string());
        }
    }

    /// Appends a byte string made of stretches of `stride` bytes that are of different kinds.
    pub(super) fn put_striped(&mut self, stripes: &[u8], stride: usize) {
        self.put(stripes);
        let first = self.bytes.len() - stripes.len().min(self.bytes.len());
        self.seams
            .extend((first..=self.bytes.len()).step_by(stride.max(1)));
    }

    /// The body, or the first failure.
    pub(super) fn finish(self) -> Result<Body, String> {
        match self.failure {
            None => Ok(Body {
                bytes: self.bytes,
                seams: self.seams,
            }),
            Some(failure) => Err(failure),
        }
    }
}

/// Walks the body of a block.
#[derive(Debug)]
pub(super) struct Source<'a> {
    rest: &'a [u8],
    section: &'static str,
}

impl<'a> Source<'a> {
    /// Starts at the beginning of a body.
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self {
            rest: body,
            section: "block body",
        }
    }

    /// Names the section that follows, for error messages.
    pub(super) fn enter(&mut self, section: &'static str) {
        self.section = section;
    }

    /// Next value.
    pub(super) fn get<T: bincode::BorrowDecode<'a, ()>>(&mut self) -> Result<T, Flaw> {
        match bincode::borrow_decode_from_slice(self.rest, coding()) {
            Ok((value, used)) => {
                self.rest = self.rest.get(used..).unwrap_or_default();
                Ok(value)
            }
            Err(error) => Err(self.flaw(format!("undecodable: {error:?}"))),
        }
    }

    /// Next unsigned number, which must lie below `bound` (`what` names it).
    pub(super) fn get_below(&mut self, bound: u64, what: &str) -> Result<usize, Flaw> {
        let value: u64 = self.get()?;
        match usize::try_from(value) {
            Ok(small) if value < bound => Ok(small),
            _ => Err(self.flaw(format!("{what} is {value}, must be below {bound}"))),
        }
    }

    /// A flaw in the section being read.
    pub(super) fn flaw(&self, what: impl Into<String>) -> Flaw {
        Flaw::damaged(self.section, what)
    }

    /// Fails unless everything was read.
    pub(super) fn finish(self) -> Result<(), Flaw> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.flaw(format!("{} bytes left over", self.rest.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_texts_and_bytes_are_coded_as_documented() {
        let mut sink = Sink::default();
        sink.put(250_u64);
        sink.put(251_u32);
        sink.put(-1_i64);
        sink.put(("ab", Some(7_u8), None::<u8>));
        let body = sink.finish().unwrap().bytes;
        assert_eq!(body, [250, 251, 251, 0, 1, 2, b'a', b'b', 1, 7, 0]);
        let mut source = Source::new(&body);
        assert_eq!(source.get::<u64>().unwrap(), 250);
        assert_eq!(source.get_below(252, "it").unwrap(), 251);
        assert_eq!(source.get::<i64>().unwrap(), -1);
        assert_eq!(
            source.get::<(&str, Option<u8>, Option<u8>)>().unwrap(),
            ("ab", Some(7), None)
        );
        source.finish().unwrap();
    }

    #[test]
    fn flaws_name_the_section() {
        let mut source = Source::new(&[9]);
        source.enter("marks");
        let flaw = source.get_below(9, "width").unwrap_err();
        assert_eq!(
            (flaw.section, flaw.what.as_str()),
            ("marks", "width is 9, must be below 9")
        );
        assert_eq!(
            Source::new(&[1]).finish().unwrap_err().what,
            "1 bytes left over"
        );
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused() {
        let mut body = vec![253];
        body.extend((MAX_BODY_BYTES as u64 + 1).to_le_bytes());
        assert!(Source::new(&body).get::<Vec<u8>>().is_err());
        assert!(Source::new(&body).get::<&[u8]>().is_err());
    }
}

//! A block: the unit a trace is written, checked and lost in. One block is one zstd frame (with
//! content size and content checksum) whose content is this header and a body.
//!
//! ```text
//! at  bytes
//!  0      4  magic "TRTB"
//!  4      2  format version
//!  6      1  kind: 1 header, 2 events, 3 end
//!  7      1  flags: 1 pointers are referred to by recency (see `section/references.rs`), 2 totals
//!            carry the check of hooks against CUPTI, 4 and the number of ops that CUPTI was not
//!            asked to time
//!  8      4  sequence number of the block (0 is the header block)
//! 12      4  bytes of the body
//! 16      4  CRC-32 of header (this field 0) and body
//! 20     40  counts: functions, streams, allocs, frees, ops, op times, migrations, faults, marks,
//!            totals (4 bytes each)
//! 60     12  ids before this block: functions, streams, allocs (4 bytes each)
//! 72      8  ops before this block
//! ```
//!
//! All numbers are little-endian. Magic and version keep their places in every later version.

use super::super::error::Error;
use super::coding::Body;

/// Version written, and the newest that can be read.
pub const VERSION: u16 = 1;
/// First bytes of every block's content.
pub(super) const MAGIC: [u8; 4] = *b"TRTB";
/// Bytes of a block header.
pub(super) const HEADER_BYTES: usize = 80;
/// Most bytes a block's body may hold.
pub(super) const MAX_BODY_BYTES: usize = 64 << 20;
/// Most entries of one kind a block may hold. A writer closes blocks long before.
pub(super) const MAX_COUNT: u32 = 1 << 17;
/// First bytes of a zstd frame.
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Shortest stretch of a frame that is worth statistics of its own.
const STRETCH_BYTES: usize = 1 << 10;
/// zstd level. On a recorded training step 9 finds 3 % more than 1 or 5 do, and compresses far
/// faster than any job makes events.
const LEVEL: i32 = 9;

/// What is wrong with a block, before it is known which file and offset it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) section: &'static str,
    pub(super) what: String,
    pub(super) kind: FlawKind,
}

/// How a [`Flaw`] becomes an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlawKind {
    Damaged,
    Foreign,
    Newer,
    /// One block claims more than any may hold.
    TooLarge,
    /// All blocks together take more memory than a file of this size should.
    TooMuch,
}

impl Flaw {
    pub(super) fn new(kind: FlawKind, section: &'static str, what: impl Into<String>) -> Self {
        Self {
            section,
            what: what.into(),
            kind,
        }
    }

    pub(super) fn damaged(section: &'static str, what: impl Into<String>) -> Self {
        Self::new(FlawKind::Damaged, section, what)
    }

    pub(super) fn at(self, file: &str, offset: u64) -> Error {
        let Self {
            section,
            what,
            kind,
        } = self;
        let file = file.to_owned();
        match kind {
            FlawKind::Damaged => Error::Damaged {
                file,
                section,
                offset,
                what,
            },
            FlawKind::Foreign => Error::NotOurs {
                file,
                section: "trace",
                what,
            },
            FlawKind::Newer => Error::Newer {
                file,
                section,
                what,
            },
            FlawKind::TooLarge | FlawKind::TooMuch => Error::TooLarge {
                file,
                section,
                offset,
                what,
            },
        }
    }
}

/// What a block is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Header,
    #[default]
    Events,
    End,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Header => 1,
            Self::Events => 2,
            Self::End => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Header),
            2 => Some(Self::Events),
            3 => Some(Self::End),
            _ => None,
        }
    }
}

/// Entries of each kind in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) functions: u32,
    pub(super) streams: u32,
    pub(super) allocs: u32,
    pub(super) frees: u32,
    pub(super) ops: u32,
    pub(super) op_times: u32,
    pub(super) migrations: u32,
    pub(super) faults: u32,
    pub(super) marks: u32,
    pub(super) totals: u32,
}

impl Counts {
    fn list(self) -> [u32; 10] {
        let Self {
            functions,
            streams,
            allocs,
            frees,
            ops,
            ..
        } = self;
        let Self {
            op_times,
            migrations,
            faults,
            marks,
            totals,
            ..
        } = self;
        [
            functions, streams, allocs, frees, ops, op_times, migrations, faults, marks, totals,
        ]
    }
}

/// Ids given out before a block, so that a lost block does not renumber those after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) functions: u32,
    pub(super) streams: u32,
    pub(super) allocs: u32,
    pub(super) ops: u64,
}

/// The fixed part of a block's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) kind: Kind,
    pub(super) by_recency: bool,
    pub(super) checked: bool,
    /// Totals say how many ops CUPTI was not asked to time; else it was asked for all.
    pub(super) sampled: bool,
    pub(super) sequence: u32,
    pub(super) counts: Counts,
    pub(super) before: Before,
}

impl BlockHeader {
    /// The bytes in front of `body`.
    pub(super) fn encode(&self, body: &[u8]) -> Vec<u8> {
        let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        let flags = u8::from(self.by_recency)
            | (u8::from(self.checked) << 1)
            | (u8::from(self.sampled) << 2);
        bytes.extend([self.kind.code(), flags]);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(body_bytes.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        self.counts
            .list()
            .iter()
            .for_each(|count| bytes.extend(count.to_le_bytes()));
        let Before {
            functions,
            streams,
            allocs,
            ops,
        } = self.before;
        [functions, streams, allocs]
            .iter()
            .for_each(|id| bytes.extend(id.to_le_bytes()));
        bytes.extend(ops.to_le_bytes());
        let crc = checksum(&bytes, body);
        if let Some(field) = bytes.get_mut(16..20) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
        bytes
    }

    /// Splits a block's content into header and body and checks both.
    pub(super) fn decode(content: &[u8]) -> Result<(Self, &[u8]), Flaw> {
        let flaw = |what: String| Flaw::damaged("block header", what);
        check_identity(content)?;
        let Some((header, body)) = content.split_first_chunk::<HEADER_BYTES>() else {
            return Err(flaw(format!(
                "{} bytes, a header has {HEADER_BYTES}",
                content.len()
            )));
        };
        if u32_at(header, 12) as usize != body.len() {
            return Err(flaw(format!(
                "body of {} bytes, not {}",
                body.len(),
                u32_at(header, 12)
            )));
        }
        let mut bare = *header;
        if let Some(field) = bare.get_mut(16..20) {
            field.fill(0);
        }
        if checksum(&bare, body) != u32_at(header, 16) {
            return Err(flaw("CRC-32 does not match".to_owned()));
        }
        let code = header.get(6).copied().unwrap_or_default();
        let Some(kind) = Kind::from_code(code) else {
            return Err(flaw(format!("unknown block kind {code}")));
        };
        let flags = header.get(7).copied().unwrap_or_default();
        if flags > 7 {
            let what = format!("block flags {flags:#x} are unknown to this build");
            return Err(Flaw::new(FlawKind::Newer, "block header", what));
        }
        let count = |index: usize| u32_at(header, 20 + 4 * index);
        if let Some(count) = (0..10).map(count).find(|count| *count > MAX_COUNT) {
            let what = format!("{count} entries of one kind, at most {MAX_COUNT}");
            return Err(Flaw::new(FlawKind::TooLarge, "block header", what));
        }
        let counts = Counts {
            functions: count(0),
            streams: count(1),
            allocs: count(2),
            frees: count(3),
            ops: count(4),
            op_times: count(5),
            migrations: count(6),
            faults: count(7),
            marks: count(8),
            totals: count(9),
        };
        let before = Before {
            functions: u32_at(header, 60),
            streams: u32_at(header, 64),
            allocs: u32_at(header, 68),
            ops: u64::from(u32_at(header, 72)) | u64::from(u32_at(header, 76)) << 32,
        };
        Ok((
            Self {
                kind,
                by_recency: flags & 1 != 0,
                checked: flags & 2 != 0,
                sampled: flags & 4 != 0,
                sequence: u32_at(header, 8),
                counts,
                before,
            },
            body,
        ))
    }
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

/// Checks the part of a block's content that every version shares: magic and version.
pub(super) fn check_identity(content: &[u8]) -> Result<(), Flaw> {
    if !content.starts_with(&MAGIC) {
        let what = "a zstd file, but not one of TRANSIT's";
        return Err(Flaw::new(FlawKind::Foreign, "block header", what));
    }
    let Some(version) = content.get(4..).and_then(|rest| rest.first_chunk::<2>()) else {
        return Err(Flaw::damaged("block header", "ends inside the version"));
    };
    match u16::from_le_bytes(*version) {
        VERSION => Ok(()),
        0 => Err(Flaw::damaged(
            "block header",
            "format version 0 does not exist",
        )),
        newer => {
            let what = format!("trace format {newer}, this build reads up to {VERSION}");
            Err(Flaw::new(FlawKind::Newer, "block header", what))
        }
    }
}

/// Turns blocks into frames.
pub(super) struct Framer(zstd_safe::CCtx<'static>);

impl std::fmt::Debug for Framer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Framer")
    }
}

impl Framer {
    /// A compressor that adds content size and checksum to each frame.
    pub(super) fn new() -> Result<Self, Error> {
        use zstd_safe::CParameter;
        let mut context = zstd_safe::CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::ChecksumFlag(true),
            CParameter::ContentSizeFlag(true),
        ] {
            context.set_parameter(parameter).map_err(zstd_failure)?;
        }
        Ok(Self(context))
    }

    /// One whole frame.
    pub(super) fn frame(&mut self, header: &BlockHeader, body: &Body) -> Result<Vec<u8>, Error> {
        let body_bytes = body.bytes.len();
        if body_bytes > MAX_BODY_BYTES {
            let what = format!("a block of {body_bytes} bytes, at most {MAX_BODY_BYTES}");
            return Err(Error::Invalid {
                section: "block",
                what,
            });
        }
        let mut content = header.encode(&body.bytes);
        content.extend_from_slice(&body.bytes);
        let seams = body.seams.iter().map(|seam| HEADER_BYTES + seam);
        self.compress(&content, seams)
    }

    /// Compresses the content as one frame, in stretches that each get statistics of their own:
    /// the noise of one column must not spoil the coding of the next.
    fn compress(
        &mut self,
        content: &[u8],
        seams: impl Iterator<Item = usize>,
    ) -> Result<Vec<u8>, Error> {
        let context = &mut self.0;
        context
            .reset(zstd_safe::ResetDirective::SessionOnly)
            .map_err(zstd_failure)?;
        context
            .set_pledged_src_size(Some(content.len() as u64))
            .map_err(zstd_failure)?;
        // Each stretch costs at most a few bytes of block header more than one of any length.
        let bound = zstd_safe::compress_bound(content.len());
        let mut frame = Vec::with_capacity(bound + content.len() / STRETCH_BYTES * 16 + 64);
        let mut output = zstd_safe::OutBuffer::around(&mut frame);
        let mut done = 0;
        let within = seams.filter(|seam| *seam < content.len());
        for seam in within.chain([content.len()]) {
            let last = seam == content.len();
            if !last && seam < done + STRETCH_BYTES {
                continue;
            }
            let mut input =
                zstd_safe::InBuffer::around(content.get(done..seam).unwrap_or_default());
            loop {
                context
                    .compress_stream(&mut output, &mut input)
                    .map_err(zstd_failure)?;
                let fed = input.pos() == seam - done;
                let left = match (fed, last) {
                    (false, _) => 1,
                    (true, false) => context.flush_stream(&mut output).map_err(zstd_failure)?,
                    (true, true) => context.end_stream(&mut output).map_err(zstd_failure)?,
                };
                if left == 0 {
                    break;
                }
                if output.pos() == output.capacity() {
                    let what = "zstd: more bytes than its bound".to_owned();
                    return Err(Error::Invalid {
                        section: "block",
                        what,
                    });
                }
            }
            done = seam;
        }
        Ok(frame)
    }
}

fn zstd_failure(code: zstd_safe::ErrorCode) -> Error {
    Error::Invalid {
        section: "block",
        what: format!("zstd: {}", zstd_safe::get_error_name(code)),
    }
}

/// Decompresses one frame into `content`, whose size is bounded by what a block may hold.
pub(super) fn unframe(
    context: &mut zstd_safe::DCtx<'static>,
    frame: &[u8],
    content: &mut Vec<u8>,
) -> Result<(), Flaw> {
    let flaw = |what: String| Flaw::damaged("zstd frame", what);
    let size = match zstd_safe::get_frame_content_size(frame) {
        Ok(Some(size)) => size,
        Ok(None) => return Err(flaw("no content size".to_owned())),
        Err(error) => return Err(flaw(format!("{error:?}"))),
    };
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_BODY_BYTES + HEADER_BYTES {
        let what = format!("a block of {size} bytes, at most {MAX_BODY_BYTES}");
        return Err(Flaw::new(FlawKind::TooLarge, "zstd frame", what));
    }
    content.clear();
    content.reserve_exact(size);
    match context.decompress(content, frame) {
        Ok(got) if got == size => Ok(()),
        Ok(got) => Err(flaw(format!("content size says {size} bytes, {got} found"))),
        Err(code) => Err(flaw(zstd_safe::get_error_name(code).to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> BlockHeader {
        let counts = Counts {
            functions: 1,
            streams: 2,
            allocs: 3,
            frees: 4,
            ops: 5,
            op_times: 6,
            migrations: 7,
            faults: 8,
            marks: 9,
            totals: 1,
        };
        let before = Before {
            functions: 11,
            streams: 12,
            allocs: 13,
            ops: 1 << 40,
        };
        BlockHeader {
            kind: Kind::Events,
            by_recency: true,
            checked: true,
            sampled: true,
            sequence: 3,
            counts,
            before,
        }
    }

    fn content(header: &BlockHeader, body: &[u8]) -> Vec<u8> {
        [&header.encode(body), body].concat()
    }

    #[test]
    fn a_header_returns_and_has_the_documented_layout() {
        let content = content(&filled(), b"body");
        assert_eq!(content.len(), HEADER_BYTES + 4);
        assert_eq!(
            BlockHeader::decode(&content).unwrap(),
            (filled(), &b"body"[..])
        );
        assert_eq!(content[..12], *b"TRTB\x01\x00\x02\x07\x03\x00\x00\x00");
        assert_eq!((u32_at(&content, 36), u32_at(&content, 56)), (5, 1));
        assert_eq!((u32_at(&content, 60), u32_at(&content, 76)), (11, 1 << 8));
    }

    #[test]
    fn every_flip_and_every_cut_is_seen() {
        let good = content(&filled(), b"body");
        for length in 0..good.len() {
            assert!(
                BlockHeader::decode(&good[..length]).is_err(),
                "accepted {length} bytes"
            );
        }
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(BlockHeader::decode(&bad).is_err(), "bit {at} went unseen");
        }
    }

    #[test]
    fn magic_version_and_counts_have_errors_of_their_own() {
        let good = content(&filled(), b"");
        let kind_of = |bytes: &[u8]| BlockHeader::decode(bytes).unwrap_err().kind;
        assert_eq!(kind_of(&[b"XXXX", &good[4..]].concat()), FlawKind::Foreign);
        assert_eq!(
            kind_of(&[&good[..4], &[2, 0], &good[6..]].concat()),
            FlawKind::Newer
        );
        assert_eq!(
            kind_of(&[&good[..4], &[0, 0], &good[6..]].concat()),
            FlawKind::Damaged
        );
        let counts = Counts {
            ops: MAX_COUNT + 1,
            ..Counts::default()
        };
        let huge = content(&BlockHeader { counts, ..filled() }, b"");
        assert_eq!(kind_of(&huge), FlawKind::TooLarge);
    }

    #[test]
    fn seams_anywhere_leave_one_frame_of_the_same_content() {
        let mut framer = Framer::new().unwrap();
        let bytes: Vec<u8> = (0..40_000_u32).map(|at| ((at * at) >> 7) as u8).collect();
        for seams in [
            vec![],
            vec![0],
            vec![40_000],
            (0..=40_000).step_by(1_000).collect(),
        ] {
            let body = Body {
                bytes: bytes.clone(),
                seams,
            };
            let frame = framer.frame(&filled(), &body).unwrap();
            assert_eq!(
                zstd_safe::find_frame_compressed_size(&frame),
                Ok(frame.len())
            );
            let mut content = Vec::new();
            unframe(&mut zstd_safe::DCtx::create(), &frame, &mut content).unwrap();
            assert_eq!(BlockHeader::decode(&content).unwrap().1, bytes);
        }
    }

    #[test]
    fn a_frame_holds_size_and_checksum() {
        let mut framer = Framer::new().unwrap();
        let frame = framer
            .frame(
                &filled(),
                &Body {
                    bytes: vec![7; 1000],
                    seams: vec![100],
                },
            )
            .unwrap();
        assert_eq!(
            zstd_safe::get_frame_content_size(&frame).unwrap(),
            Some(1080)
        );
        assert_eq!(frame[4] & 4, 4, "content checksum flag");
        let mut content = Vec::new();
        unframe(&mut zstd_safe::DCtx::create(), &frame, &mut content).unwrap();
        assert_eq!(BlockHeader::decode(&content).unwrap().1, [7; 1000]);
    }
}

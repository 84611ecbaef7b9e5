//! Reads a trace: finds frames, decodes a handful of blocks at a time in parallel, joins them in
//! order, and decides what a bad block means.
//!
//! A block that cannot be read and after which no good block follows is a cut tail: the writer was
//! killed. If a good block follows, bytes in the middle went wrong: an error, or with `lenient` an
//! entry in [`Salvage::damage`].

use std::io::Read;
use std::path::Path;

use rayon::prelude::*;

use super::block::{
    BlockHeader, Flaw, FlawKind, HEADER_BYTES, Kind, MAX_BODY_BYTES, ZSTD_MAGIC, check_identity,
    unframe,
};
use super::model::Header;
use super::section::end::{self, EndFacts};
use super::section::{Events, head};
use super::stitch::{Gap, Needs, Stitch, list_hashes};
use super::{End, Trace};
use crate::error::Error;

/// Bytes from which a foreign file is told, before all of it is read: one zstd block of at most
/// 128 KiB is enough to see the first bytes of the content.
const PEEK_BYTES: usize = 160 << 10;
/// Files over this size are refused for their first bytes alone. In smaller ones it is worth a look
/// whether just those bytes are damaged.
const FOREIGN_BYTES: u64 = 256 << 20;
/// Failed attempts to find a good block after a bad one, per file.
const MAX_PROBES: u32 = 4096;
/// Blocks decoded at once, per thread.
const BATCH_PER_THREAD: usize = 2;
/// Most blocks decoded at once: a bound on memory on machines with many cores.
const MAX_BATCH: usize = 64;

/// What [`Trace::open_lenient`] returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Salvage {
    /// Everything that could be read. Entries of lost tables are named `(lost)`.
    pub trace: Trace,
    /// What could not, in file order. Empty for a good file.
    pub damage: Vec<Damage>,
}

/// A stretch of a trace file that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// Section that showed it.
    pub section: &'static str,
    /// What is wrong.
    pub reason: String,
    /// Ops known to be lost with it: the first, and how many.
    pub lost_ops: Option<(u64, u64)>,
}

/// A decoded block.
pub(super) struct Block {
    pub(super) header: BlockHeader,
    pub(super) content: Content,
}

/// What a block holds.
pub(super) enum Content {
    Header(Box<Header>),
    Events(Box<Events>, Vec<u64>, Needs),
    End(EndFacts),
}

/// Reads the whole file; with `strict`, a file that does not begin as a trace is refused before.
pub(super) fn load(path: &Path, name: &str, strict: bool) -> Result<Vec<u8>, Error> {
    let io = |error| Error::io(name, error);
    let (mut file, size) = crate::file::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    (&mut file)
        .take(PEEK_BYTES as u64)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if strict && size > FOREIGN_BYTES {
        identify(&bytes).map_err(|flaw| flaw.at(name, 0))?;
    }
    bytes.reserve_exact(
        usize::try_from(size)
            .unwrap_or(0)
            .saturating_sub(bytes.len()),
    );
    file.read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// Tells from the first bytes of a file whether it can be a trace of a version we know.
fn identify(bytes: &[u8]) -> Result<(), Flaw> {
    let foreign = |what: &str| Err(Flaw::new(FlawKind::Foreign, "zstd frame", what));
    let magic = bytes.get(..4).unwrap_or(bytes);
    if !ZSTD_MAGIC.starts_with(magic) {
        return foreign("it does not begin as a zstd file");
    }
    let mut content = [0_u8; 8];
    let mut context = zstd_safe::DCtx::create();
    let mut input = zstd_safe::InBuffer::around(bytes);
    let mut output = zstd_safe::OutBuffer::around(&mut content[..]);
    loop {
        let before = (input.pos(), output.pos());
        if context.decompress_stream(&mut output, &mut input).is_err() {
            break;
        }
        if output.pos() == output.capacity() || (input.pos(), output.pos()) == before {
            break;
        }
    }
    match output.pos() {
        // Too little to tell: a cut or damaged first block, reported by whoever decodes it.
        0..6 => Ok(()),
        got => check_identity(content.get(..got).unwrap_or_default()),
    }
}

/// Decodes one frame.
fn decode(context: &mut (zstd_safe::DCtx<'static>, Vec<u8>), frame: &[u8]) -> Result<Block, Flaw> {
    let (context, content) = context;
    unframe(context, frame, content)?;
    let (header, body) = BlockHeader::decode(content)?;
    let content = match header.kind {
        Kind::Header => Content::Header(Box::new(head::decode(body)?)),
        Kind::Events => {
            let events = Events::decode(body, &header)?;
            let (hashes, needs) = (list_hashes(&events), Needs::of(&events));
            Content::Events(Box::new(events), hashes, needs)
        }
        Kind::End => Content::End(end::decode(body)?),
    };
    Ok(Block { header, content })
}

fn new_context() -> (zstd_safe::DCtx<'static>, Vec<u8>) {
    (zstd_safe::DCtx::create(), Vec::new())
}

/// Length of the frame at `at`.
fn frame_bytes(bytes: &[u8], at: usize) -> Result<usize, Flaw> {
    let rest = bytes.get(at..).unwrap_or_default();
    // No frame we write is longer: a hostile one is not walked further.
    let most = zstd_safe::compress_bound(MAX_BODY_BYTES + HEADER_BYTES);
    let rest = rest.get(..most).unwrap_or(rest);
    if !rest.starts_with(&ZSTD_MAGIC) {
        return Err(Flaw::damaged("zstd frame", "no zstd frame begins here"));
    }
    zstd_safe::find_frame_compressed_size(rest).map_err(|code| {
        let what = match zstd_safe::get_error_name(code) {
            "Src size is incorrect" => "the file ends within this frame",
            other => other,
        };
        Flaw::damaged("zstd frame", what)
    })
}

/// A frame's place in the file and what was in it.
struct Piece {
    at: usize,
    bytes: usize,
    block: Result<Block, Flaw>,
}

/// Finds and decodes the next blocks from `at` on.
fn next_batch(bytes: &[u8], at: usize) -> Vec<Piece> {
    let most = (BATCH_PER_THREAD * rayon::current_num_threads()).min(MAX_BATCH);
    let mut places = Vec::with_capacity(most);
    let mut next = at;
    let mut failure = None;
    while places.len() < most && next < bytes.len() {
        match frame_bytes(bytes, next) {
            Ok(length) => {
                places.push((next, length));
                next += length.max(1);
            }
            Err(flaw) => {
                let left = bytes.len() - next;
                failure = Some(Piece {
                    at: next,
                    bytes: left,
                    block: Err(flaw),
                });
                break;
            }
        }
    }
    let mut pieces: Vec<Piece> = places
        .into_par_iter()
        .map_init(new_context, |context, (at, length)| {
            let frame = bytes.get(at..at + length).unwrap_or_default();
            Piece {
                at,
                bytes: length,
                block: decode(context, frame),
            }
        })
        .collect();
    pieces.extend(failure);
    pieces
}

/// Finds the next good block from `from` on. `probes` bounds the work over the whole file.
fn find_good_block(bytes: &[u8], from: usize, probes: &mut u32) -> Option<usize> {
    let mut context = new_context();
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.windows(4).position(|window| window == ZSTD_MAGIC)?;
        let good = frame_bytes(bytes, at).is_ok_and(|length| {
            let frame = bytes.get(at..at + length).unwrap_or_default();
            identify(frame).is_ok() && decode(&mut context, frame).is_ok()
        });
        if good {
            return Some(at);
        }
        *probes = probes.checked_sub(1)?;
        at += 1;
    }
}

/// Reads a trace, with or without keeping what is good of a damaged one.
pub(super) fn read(bytes: &[u8], name: &str, lenient: bool) -> Result<Salvage, Error> {
    if bytes.is_empty() {
        let what = "the file is empty: its writer was killed at once, or has not begun";
        return Err(Error::Truncated {
            file: name.to_owned(),
            section: "header block",
            offset: 0,
            what: what.to_owned(),
        });
    }
    if let Err(flaw) = identify(bytes) {
        let intact = frame_bytes(bytes, 0).is_ok_and(|length| {
            let (mut context, mut content) = new_context();
            unframe(
                &mut context,
                bytes.get(..length).unwrap_or_default(),
                &mut content,
            )
            .is_ok()
        });
        // A damaged header block looks foreign too, but blocks of ours follow it.
        let mut probes = MAX_PROBES;
        if intact || find_good_block(bytes, 1, &mut probes).is_none() {
            return Err(flaw.at(name, 0));
        }
    }
    Reading {
        bytes,
        name,
        lenient,
        probes: MAX_PROBES,
        stitch: Stitch::new(bytes.len()),
        damage: Vec::new(),
    }
    .run()
}

/// One pass over a file.
struct Reading<'a> {
    bytes: &'a [u8],
    name: &'a str,
    lenient: bool,
    probes: u32,
    stitch: Stitch,
    damage: Vec<Damage>,
}

impl Reading<'_> {
    fn run(mut self) -> Result<Salvage, Error> {
        let bytes = self.bytes;
        let mut batch = next_batch(bytes, 0);
        let end = loop {
            if batch.is_empty() {
                break self.end_of_file();
            }
            // While one thread joins these blocks, the others decode those that should follow.
            let due = batch.last().map_or(0, |piece| piece.at + piece.bytes);
            let (following, went) =
                rayon::join(|| next_batch(bytes, due), || self.join_batch(batch));
            match went? {
                Ok(at) if at == due => batch = following,
                Ok(at) => batch = next_batch(bytes, at),
                Err(end) => break end,
            }
        };
        let damage = self.damage;
        self.stitch
            .finish(end, self.name, self.lenient)
            .map(|trace| Salvage { trace, damage })
    }

    /// Joins blocks up to the first bad one: says where to go on, or how the file ends.
    fn join_batch(&mut self, batch: Vec<Piece>) -> Result<Result<usize, End>, Error> {
        let mut next = 0;
        for Piece { at, bytes, block } in batch {
            match block.and_then(|block| self.stitch.join(block, self.lenient)) {
                Ok(gap) => note_gap(&mut self.damage, gap, at),
                Err(flaw) => return self.after_flaw(at, flaw),
            }
            next = at + bytes;
        }
        Ok(Ok(next))
    }

    fn end_of_file(&self) -> End {
        if self.stitch.ended() {
            return End::Clean;
        }
        let reason = "no end block: its writer was killed or is still at work".to_owned();
        End::Cut {
            offset: self.bytes.len() as u64,
            reason,
        }
    }

    /// What to do about a bad block: go on at the offset in `Ok`, or stop with the end in `Err`.
    fn after_flaw(&mut self, offset: usize, flaw: Flaw) -> Result<Result<usize, End>, Error> {
        let at = offset as u64;
        let fatal = match flaw.kind {
            FlawKind::Newer | FlawKind::TooMuch => true,
            FlawKind::TooLarge => !self.lenient,
            FlawKind::Damaged | FlawKind::Foreign => false,
        };
        if fatal {
            return Err(flaw.at(self.name, at));
        }
        let next = find_good_block(self.bytes, offset + 1, &mut self.probes);
        if !self.lenient && (next.is_some() || self.stitch.ended()) {
            return Err(Flaw {
                kind: FlawKind::Damaged,
                ..flaw
            }
            .at(self.name, at));
        }
        let end = next.unwrap_or(self.bytes.len());
        let Some(next) = next.filter(|_| self.lenient) else {
            if !self.stitch.begun() {
                return Err(self.nothing_usable(at, flaw));
            }
            if self.stitch.ended() {
                self.damage.push(Damage::new(offset, end, flaw));
                return Ok(Err(End::Clean));
            }
            let reason = format!("{}: {}", flaw.section, flaw.what);
            return Ok(Err(End::Cut { offset: at, reason }));
        };
        self.damage.push(Damage::new(offset, end, flaw));
        Ok(Ok(next))
    }

    fn nothing_usable(&self, offset: u64, flaw: Flaw) -> Error {
        let file = self.name.to_owned();
        Error::Truncated {
            file,
            section: "header block",
            offset,
            what: flaw.what,
        }
    }
}

/// Adds missing blocks to the damage they were lost with, or as damage of their own.
fn note_gap(damage: &mut Vec<Damage>, gap: Option<Gap>, at: usize) {
    let Some(Gap { blocks, lost_ops }) = gap else {
        return;
    };
    let at = at as u64;
    match damage.last_mut() {
        Some(last) if last.offset + last.bytes == at => last.lost_ops = lost_ops,
        _ => damage.push(Damage {
            offset: at,
            section: "block header",
            reason: format!("{blocks} blocks are missing before this one"),
            lost_ops,
            ..Damage::default()
        }),
    }
}

impl Damage {
    fn new(offset: usize, end: usize, flaw: Flaw) -> Self {
        Self {
            offset: offset as u64,
            bytes: end.saturating_sub(offset) as u64,
            section: flaw.section,
            reason: flaw.what,
            lost_ops: None,
        }
    }
}

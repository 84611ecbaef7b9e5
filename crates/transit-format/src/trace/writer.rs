//! Writes a trace to any sink, one whole frame per `write_all`, so that whatever kills the process
//! leaves all earlier blocks readable.

use std::io::Write;

use super::block::{Before, BlockHeader, Framer, Kind};
use super::coding::Body;
use super::model::{Event, Header, Op, Pointer};
use super::section::end::{self, EndFacts};
use super::section::times::OpTime;
use super::section::{Events, head};
use crate::error::Error;
use crate::ids::Nanos;

/// Events per block.
const BLOCK_EVENTS: u64 = 1 << 15;
/// Pointers per block.
const BLOCK_POINTERS: usize = 1 << 20;
/// Bytes of names and callers per block.
const BLOCK_TEXT_BYTES: usize = 4 << 20;
/// Longest text stored, in bytes; longer ones are cut.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// Longest caller stored, in bytes; longer ones are cut.
pub const MAX_CALLER_BYTES: usize = 255;

/// Writes a trace. Dropping it without [`Writer::finish`] leaves a file that reads as cut.
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: W,
    framer: Framer,
    block: Events,
    block_events: u64,
    block_text_bytes: usize,
    sequence: u32,
    before: Before,
    facts: EndFacts,
    bytes_written: u64,
    /// What the sink said when it failed. The trace ends there: anything after a torn frame
    /// would read as damage.
    failed: Option<std::io::ErrorKind>,
}

impl<W: Write> Writer<W> {
    /// Starts a trace and writes its header block.
    ///
    /// # Errors
    /// [`Error::Io`] if the sink fails, [`Error::Invalid`] if the header is over 64 MiB.
    pub fn new(sink: W, header: &Header) -> Result<Self, Error> {
        let mut writer = Self {
            sink,
            framer: Framer::new()?,
            block: Events::default(),
            block_events: 0,
            block_text_bytes: 0,
            sequence: 0,
            before: Before::default(),
            facts: EndFacts::default(),
            bytes_written: 0,
            failed: None,
        };
        let body = head::encode(header);
        writer.write_block(Kind::Header, body)?;
        Ok(writer)
    }

    /// Adds one event; closes the block when it is full.
    ///
    /// # Errors
    /// [`Error::Io`] if the sink failed now or before: the trace ends at the last whole block, and
    /// nothing more is kept.
    pub fn push(&mut self, event: Event) -> Result<(), Error> {
        self.check_sink()?;
        match event {
            Event::Function(mut function) => {
                cut_text(&mut function.name, MAX_TEXT_BYTES);
                self.block_text_bytes += function.name.len();
                self.block.functions.push(function);
            }
            Event::Stream(stream) => self.block.streams.push(stream),
            Event::Alloc(mut alloc) => {
                cut_text(&mut alloc.caller, MAX_CALLER_BYTES);
                self.block_text_bytes += alloc.caller.len();
                self.block.allocs.push(alloc);
            }
            Event::Free(free) => self.block.frees.push(free),
            Event::Op(op, pointers) => self.push_op(op, &pointers),
            Event::OpTime {
                op,
                start_ns,
                end_ns,
            } => {
                let time = OpTime {
                    op: op.0,
                    start_ns: start_ns.0,
                    end_ns: end_ns.0,
                };
                self.block.op_times.push(time);
            }
            Event::Migration(migration) => self.block.migrations.push(migration),
            Event::Fault(fault) => self.block.faults.push(fault),
            Event::Mark(mark) => self.block.marks.push(mark),
            Event::Totals(totals) => self.block.totals = Some(totals),
        }
        self.block_events += 1;
        self.facts.events += 1;
        if self.block_events >= BLOCK_EVENTS
            || self.block.pointers.len() >= BLOCK_POINTERS
            || self.block_text_bytes >= BLOCK_TEXT_BYTES
        {
            return self.flush_block();
        }
        Ok(())
    }

    fn push_op(&mut self, op: Op, pointers: &[Pointer]) {
        // Pointers are advisory; refusing the op instead would misnumber all later ones.
        let pointers = pointers.get(..BLOCK_POINTERS).unwrap_or(pointers);
        let count = u32::try_from(pointers.len()).unwrap_or(u32::MAX);
        // Times known already are stored like those that come later: one way to read them.
        if op.start_ns != Nanos(0) || op.end_ns != Nanos(0) {
            let number = self.before.ops + self.block.ops.len() as u64;
            let time = OpTime {
                op: number,
                start_ns: op.start_ns.0,
                end_ns: op.end_ns.0,
            };
            self.block.op_times.push(time);
        }
        let first_pointer = self.block.pointers.len() as u64;
        self.block.ops.push(Op {
            first_pointer,
            pointers: count,
            ..op
        });
        self.block.pointers.extend_from_slice(pointers);
        self.facts.ops += 1;
    }

    /// Closes the current block and hands it to the sink; nothing happens if it is empty. Call it
    /// at least every second, so that a killed job loses no more than that.
    ///
    /// # Errors
    /// [`Error::Io`] if the sink fails, or failed before.
    pub fn flush_block(&mut self) -> Result<(), Error> {
        self.check_sink()?;
        if self.block_events == 0 {
            return Ok(());
        }
        let body = self.block.encode();
        let written = self.write_block(Kind::Events, body);
        let counts = self.block.counts();
        self.before.functions = self.before.functions.saturating_add(counts.functions);
        self.before.streams = self.before.streams.saturating_add(counts.streams);
        self.before.allocs = self.before.allocs.saturating_add(counts.allocs);
        self.before.ops += u64::from(counts.ops);
        self.block.clear();
        self.block_events = 0;
        self.block_text_bytes = 0;
        written?;
        self.sink
            .flush()
            .map_err(|error| Error::io("<sink>", error))
    }

    /// Writes what is left and the end block, and gives the sink back.
    ///
    /// # Errors
    /// [`Error::Io`] if the sink fails.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush_block()?;
        let body = end::encode(self.facts);
        self.write_block(Kind::End, body)?;
        self.sink
            .flush()
            .map_err(|error| Error::io("<sink>", error))?;
        Ok(self.sink)
    }

    /// Bytes handed to the sink so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    fn check_sink(&self) -> Result<(), Error> {
        let Some(kind) = self.failed else {
            return Ok(());
        };
        let source = std::io::Error::new(kind, "an earlier write failed, the trace ends there");
        Err(Error::io("<sink>", source))
    }

    fn write_block(&mut self, kind: Kind, body: Result<Body, String>) -> Result<(), Error> {
        let body = body.map_err(|what| Error::Invalid {
            section: "block body",
            what,
        })?;
        let header = BlockHeader {
            kind,
            by_recency: true,
            checked: true,
            sampled: self.block.sampled(),
            sequence: self.sequence,
            counts: self.block.counts(),
            before: self.before,
        };
        self.sequence = self.sequence.saturating_add(1);
        let frame = self.framer.frame(&header, &body)?;
        self.sink.write_all(&frame).map_err(|error| {
            self.failed = Some(error.kind());
            Error::io("<sink>", error)
        })?;
        self.bytes_written += frame.len() as u64;
        Ok(())
    }
}

/// Cuts a text at a character boundary.
fn cut_text(text: &mut String, most_bytes: usize) {
    if text.len() > most_bytes {
        let at = text.floor_char_boundary(most_bytes);
        text.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{End, Trace};

    /// Takes so many bytes and is full then, as a disk is.
    struct Full<'a>(&'a mut Vec<u8>, usize);

    impl Write for Full<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = bytes.len().min(self.1 - self.0.len());
            self.0.extend_from_slice(&bytes[..room]);
            match room {
                0 => Err(std::io::ErrorKind::StorageFull.into()),
                _ => Ok(room),
            }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_trace_at_a_whole_block() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Full(&mut bytes, 1_000), &Header::default()).unwrap();
        let mut written = 0;
        let mut alloc = || crate::trace::model::Alloc {
            address: {
                written += 1;
                written * 977
            },
            ..Default::default()
        };
        while writer.flush_block().is_ok() {
            if writer.push(Event::Alloc(alloc())).is_err() {
                break;
            }
        }
        for _ in 0..3 {
            let error = writer.push(Event::Alloc(alloc())).unwrap_err();
            assert!(
                error.to_string().contains("an earlier write failed"),
                "{error}"
            );
        }
        assert!(writer.finish().is_err());
        assert_eq!(bytes.len(), 1_000);
        let trace = Trace::read(&bytes, "full").unwrap();
        assert!(matches!(trace.end, End::Cut { .. }) && trace.allocs.len() > 2);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let mut text = "größe".to_owned();
        cut_text(&mut text, 3);
        assert_eq!(text, "gr");
        cut_text(&mut text, 3);
        assert_eq!(text, "gr");
    }

    #[test]
    fn an_op_keeps_the_pointers_a_block_can_hold() {
        let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
        writer.push(Event::Function(Default::default())).unwrap();
        writer.push(Event::Stream(Default::default())).unwrap();
        writer.push(Event::Alloc(Default::default())).unwrap();
        for _ in 0..2 {
            let pointers = vec![Pointer::default(); BLOCK_POINTERS + 1];
            writer.push(Event::Op(Op::default(), pointers)).unwrap();
        }
        let trace = Trace::read(&writer.finish().unwrap(), "made").unwrap();
        assert_eq!(trace.ops.len(), 2);
        assert_eq!(trace.pointers_of(&trace.ops[1]).len(), BLOCK_POINTERS);
    }

    #[test]
    fn bytes_written_is_what_the_sink_got() {
        let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
        writer.push(Event::Totals(Default::default())).unwrap();
        writer.flush_block().unwrap();
        assert_eq!(writer.bytes_written(), writer.sink.len() as u64);
    }
}

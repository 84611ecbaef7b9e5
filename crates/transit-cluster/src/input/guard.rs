//! What stands between a file and the CSV reader: rows of bounded length, and the true number of each
//! line. An opened quote that is never closed would otherwise pull the rest of a file of any size into
//! memory, and the reader's own count is off after blank lines and with CRLF.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

/// Most bytes of one row, the reader's own buffer included.
pub const MAX_ROW_BYTES: u64 = 1 << 20;

/// What was handed out, shared with whoever reads it.
#[derive(Debug, Default)]
pub struct Ledger {
    since_record: Cell<u64>,
    /// Blank lines that were left out: from which byte on, how many.
    skipped: RefCell<VecDeque<(u64, u64)>>,
    /// Those before the last row that was asked for.
    passed: Cell<u64>,
}

impl Ledger {
    /// A row is complete.
    pub fn row_done(&self) {
        self.since_record.set(0);
    }

    /// The line in the file at a position of the reader; positions only grow.
    pub fn line(&self, position: &csv::Position) -> u64 {
        let mut skipped = self.skipped.borrow_mut();
        while let Some((_, lines)) = skipped.pop_front_if(|(from, _)| *from <= position.byte()) {
            self.passed.set(self.passed.get() + lines);
        }
        position.line() + self.passed.get()
    }
}

/// Wraps a file: line ends become LF, blank lines are left out and counted.
pub struct Guard<R> {
    inner: R,
    ledger: Rc<Ledger>,
    /// Read and cleaned, to be handed out from `at` on.
    ready: Vec<u8>,
    at: usize,
    /// Bytes cleaned so far.
    cleaned: u64,
    at_line_start: bool,
    /// A CR that is dropped if LF follows.
    held_cr: bool,
}

impl<R: Read> Guard<R> {
    /// Counts into `ledger`.
    pub fn new(inner: R, ledger: Rc<Ledger>) -> Self {
        Self {
            inner,
            ledger,
            ready: Vec::new(),
            at: 0,
            cleaned: 0,
            at_line_start: true,
            held_cr: false,
        }
    }

    /// The first line that is not blank, or what there is of it.
    ///
    /// # Errors
    /// If the file cannot be read or has no line of reasonable length.
    pub fn first_line(&mut self) -> io::Result<Vec<u8>> {
        while !self.ready.contains(&b'\n') && self.fill()? {
            if self.ready.len() as u64 > MAX_ROW_BYTES {
                return Err(too_long());
            }
        }
        let line = self.ready.split(|&byte| byte == b'\n').next();
        Ok(line.unwrap_or(&[]).to_vec())
    }

    /// Reads and cleans some more; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        let mut raw = [0; 16 << 10];
        let count = loop {
            match self.inner.read(&mut raw) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        for &byte in raw.get(..count).unwrap_or(&[]) {
            self.clean(byte);
        }
        Ok(count > 0)
    }

    fn clean(&mut self, byte: u8) {
        if std::mem::take(&mut self.held_cr) && byte != b'\n' {
            self.pass(b'\r');
        }
        match byte {
            b'\r' => self.held_cr = true,
            b'\n' if self.at_line_start => {
                let mut skipped = self.ledger.skipped.borrow_mut();
                match skipped.back_mut() {
                    Some((from, lines)) if *from == self.cleaned => *lines += 1,
                    _ => skipped.push_back((self.cleaned, 1)),
                }
            }
            other => self.pass(other),
        }
    }

    fn pass(&mut self, byte: u8) {
        self.ready.push(byte);
        self.cleaned += 1;
        self.at_line_start = byte == b'\n';
    }
}

fn too_long() -> io::Error {
    let mib = MAX_ROW_BYTES >> 20;
    io::Error::other(format!(
        "the row that begins here is longer than {mib} MiB: a quote that is never closed, or no table"
    ))
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.ready.len() {
            self.ready.clear();
            self.at = 0;
            if !self.fill()? {
                return Ok(0);
            }
        }
        let rest = self.ready.get(self.at..).unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        self.at += count;
        let total = self.ledger.since_record.get() + count as u64;
        self.ledger.since_record.set(total);
        if total > MAX_ROW_BYTES {
            return Err(too_long());
        }
        Ok(count)
    }
}

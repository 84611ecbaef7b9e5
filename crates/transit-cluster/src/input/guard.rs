//! A reader that does not let one row grow without bound: an opened quote that is never closed would
//! otherwise pull the rest of a file of any size into memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Most bytes of one row, the reader's own buffer included.
pub const MAX_ROW_BYTES: u64 = 1 << 20;

/// Wraps a file; hands out its first line and counts bytes since the last row.
pub struct Guard<R> {
    inner: R,
    /// The first line, which was looked at and is still to be read.
    ahead: Vec<u8>,
    since_record: Rc<Cell<u64>>,
}

impl<R: Read> Guard<R> {
    /// Counts into `since_record`, which its owner sets to 0 after each row.
    pub fn new(inner: R, since_record: Rc<Cell<u64>>) -> Self {
        Self {
            inner,
            ahead: Vec::new(),
            since_record,
        }
    }

    /// The first line, or what there is of it.
    ///
    /// # Errors
    /// If the file cannot be read or has no line of reasonable length.
    pub fn first_line(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 4096];
        while !self.ahead.contains(&b'\n') {
            let count = match self.inner.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if count == 0 {
                break;
            }
            self.ahead
                .extend_from_slice(buffer.get(..count).unwrap_or(&[]));
            if self.ahead.len() as u64 > MAX_ROW_BYTES {
                return Err(too_long());
            }
        }
        let line = self.ahead.split(|&byte| byte == b'\n').next();
        Ok(line.unwrap_or(&[]).to_vec())
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
        let count = if self.ahead.is_empty() {
            self.inner.read(into)?
        } else {
            let count = self.ahead.len().min(into.len());
            let (now, later) = self.ahead.split_at(count);
            into.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            self.ahead = later.to_vec();
            count
        };
        let total = self.since_record.get() + count as u64;
        self.since_record.set(total);
        if total > MAX_ROW_BYTES {
            return Err(too_long());
        }
        Ok(count)
    }
}

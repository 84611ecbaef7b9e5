//! Lines on stderr without allocation or locks: formatted into a buffer on the stack and handed to
//! `write(2)` in one piece, so that lines of several ranks do not mix.

use core::fmt::{self, Write};

use crate::state;

/// Longest line; the rest is cut off.
const LINE_BYTES: usize = 1024;

struct Line {
    bytes: [u8; LINE_BYTES],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // The last byte is kept for the line feed.
            if self.used + 1 >= LINE_BYTES {
                return Ok(());
            }
            if let Some(place) = self.bytes.get_mut(self.used) {
                *place = byte;
                self.used += 1;
            }
        }
        Ok(())
    }
}

/// A line the user should see unless `TRANSIT_QUIET` is set.
pub fn say(text: fmt::Arguments<'_>) {
    if !state::quiet() {
        write_line(text);
    }
}

/// A line about something that went wrong; printed even when quiet.
pub fn complain(text: fmt::Arguments<'_>) {
    write_line(text);
}

fn write_line(text: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; LINE_BYTES],
        used: 0,
    };
    // A formatting error can only cut the line short.
    let _ = write!(line, "{}: {text}", state::prefix());
    if let Some(place) = line.bytes.get_mut(line.used) {
        *place = b'\n';
        line.used += 1;
    }
    let errno = errno_place();
    // SAFETY: the pointer is this thread's errno, valid for the thread's life.
    let saved = unsafe { *errno };
    // SAFETY: `used` bytes of `bytes` are initialised; a failed write loses the line only.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.used) };
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn errno_place() -> *mut i32 {
    // SAFETY: has no preconditions.
    unsafe { libc::__errno_location() }
}

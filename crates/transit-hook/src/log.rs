//! Lines on stderr without allocation or locks: formatted into a buffer on the stack and handed to
//! `write(2)` in one piece, so that lines of several ranks do not mix. Nothing is written where the
//! job has closed its stderr and another file of its own lies there now.

use core::fmt::{self, Write};

use std::sync::OnceLock;

use crate::kept::Identity;
use crate::spared::spared;
use crate::state;

/// Longest line; the rest is cut off. A pipe takes as much in one piece.
const LINE_BYTES: usize = 4096;

/// What was behind stderr when the shim was loaded.
static STDERR: OnceLock<Option<Identity>> = OnceLock::new();

/// Runs when the library is loaded: later the job may have closed its stderr already.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = remember_stderr;

extern "C" fn remember_stderr() {
    let _ = STDERR.set(Identity::of(libc::STDERR_FILENO));
}

/// Whether descriptor 2 takes messages: it is what it was at the start, or the job has put a
/// terminal, `/dev/null`, a log it appends to, or the place its stdout goes to there.
fn takes_messages() -> bool {
    let Some(now) = Identity::of(libc::STDERR_FILENO) else {
        return false;
    };
    let before = STDERR.get().copied().flatten();
    let as_stdout = || Identity::of(libc::STDOUT_FILENO).is_some_and(|out| out.same_file(&now));
    // SAFETY: asks for the flags of an open descriptor.
    let appends =
        || unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL) } & libc::O_APPEND != 0;
    before.is_some_and(|before| before.same_file(&now))
        || now.is(libc::S_IFCHR)
        || (now.is(libc::S_IFREG) && appends())
        || as_stdout()
}

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
    if takes_messages() {
        // SAFETY: `used` bytes of `bytes` are initialised; a failed write loses the line only.
        let _ = spared(|| unsafe {
            libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.used)
        });
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

fn errno_place() -> *mut i32 {
    // SAFETY: has no preconditions.
    unsafe { libc::__errno_location() }
}

//! Streams of our own, one in each context: what we ask the driver for on them never synchronises
//! with the job's streams. They are never destroyed, which could wait: each ends with its context.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Driver, Handle};

/// Our stream in each context, made when it is first needed.
#[derive(Debug, Default)]
pub struct OwnStreams(Mutex<Vec<(Handle, Handle)>>);

impl OwnStreams {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn list(&self) -> MutexGuard<'_, Vec<(Handle, Handle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, context: Handle) -> Option<Handle> {
        let list = self.list();
        let found = list.iter().find(|(of, _)| *of == context);
        found.map(|(_, stream)| *stream)
    }

    /// Our stream in the current context; `None` without one, or if the driver refuses. No lock is
    /// held over a driver call: of two threads that come first at once each makes a stream.
    pub fn current(&self, driver: &Driver) -> Option<Handle> {
        let context = driver.ctx_current().ok().filter(|context| *context != 0)?;
        if let Some(stream) = self.find(context) {
            return Some(stream);
        }
        let stream = driver.stream_create_nonblocking().ok()?;
        self.list().push((context, stream));
        Some(stream)
    }

    /// A context is gone, and our stream with it: its handle comes again for another.
    pub fn forget(&self, context: Handle) {
        self.list().retain(|(of, _)| *of != context);
    }
}

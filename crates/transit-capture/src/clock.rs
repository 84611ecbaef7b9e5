//! Times of a trace: nanoseconds since its start on one clock, CUPTI's. Its records carry that
//! clock's times, so what the host does is stamped with it too and nothing has to be converted: a
//! device whose time runs unlike the host's (the software GPU's virtual time) needs no exception.
//! Without CUPTI there are only the host's times, on the monotonic clock.

use transit_format::ids::Nanos;

use crate::cupti::Session;

/// CLOCK_MONOTONIC in nanoseconds.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The clock of one trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: u64,
    cupti: Option<Session>,
}

impl Clock {
    /// The clock of a trace that starts now.
    pub(crate) fn start(cupti: Option<Session>) -> Self {
        let cupti = cupti.filter(|session| session.now().is_some());
        let mut clock = Self { start: 0, cupti };
        clock.start = clock.read();
        clock
    }

    /// A clock for tests whose raw times start at `start`.
    #[cfg(test)]
    pub(crate) fn starting_at(start: u64) -> Self {
        Self { start, cupti: None }
    }

    /// The raw time now.
    pub(crate) fn read(&self) -> u64 {
        self.cupti
            .and_then(|session| session.now())
            .unwrap_or_else(monotonic_ns)
    }

    /// Trace time of a raw time or of a record's. A time before the start is the start.
    pub(crate) fn time(&self, raw: u64) -> Nanos {
        Nanos(raw.saturating_sub(self.start))
    }

    /// Trace time now.
    pub(crate) fn now(&self) -> Nanos {
        self.time(self.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cupti_time_passes_as_the_hosts() {
        let clock = Clock::start(None);
        let first = clock.now();
        assert!(clock.now() >= first && first < Nanos(1_000_000_000));
        assert_eq!(Clock::starting_at(50).time(49), Nanos(0));
        assert_eq!(Clock::starting_at(50).time(53), Nanos(3));
    }
}

//! Times of a trace: nanoseconds since its start on one clock, CUPTI's. Its records carry that
//! clock's times, so what the host does is stamped with it too and nothing has to be converted: a
//! device whose time runs unlike the host's (the software GPU's virtual time) needs no exception.
//! Without CUPTI there are only the host's times, on the monotonic clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

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

/// When ops are issued, in CUPTI's time. Asking CUPTI costs 1.5 us (H200, CUPTI 13.0), as much as
/// the rest of recording an op many times over; where its clock runs with the host's, the host's
/// is read instead (30 ns) and what CUPTI's is ahead of it is added. The writer thread finds that
/// out and keeps it up to date.
#[derive(Debug, Default)]
pub(crate) struct IssueClock {
    /// What CUPTI's clock is ahead of the host's; [`UNLIKE`] while it is not known to run alike.
    ahead: AtomicI64,
    /// The host's time at the first comparison, and what CUPTI's was ahead then.
    first: Mutex<Option<(u64, i64)>>,
}

/// Clocks that are not known to run alike.
const UNLIKE: i64 = 0;
/// A comparison over less time proves nothing.
const LEAST_APART_NS: u64 = 100_000_000;
/// How far clocks that run alike may drift apart between two comparisons: a comparison is good to
/// a few microseconds, and 5 us in 100 ms were never seen.
const MOST_DRIFT_NS: u64 = 50_000;

impl IssueClock {
    /// The time an op is issued, now.
    pub(crate) fn read(&self, clock: &Clock) -> u64 {
        match self.ahead.load(Ordering::Relaxed) {
            UNLIKE => clock.read(),
            ahead => monotonic_ns().wrapping_add_signed(ahead),
        }
    }

    /// Compares the clocks. Called by the writer thread, again and again.
    pub(crate) fn compare(&self, clock: &Clock) {
        if clock.cupti.is_none() {
            return;
        }
        let before = monotonic_ns();
        let cupti = clock.read();
        let host = before.midpoint(monotonic_ns());
        self.learn(host, cupti);
    }

    /// Takes a pair of times in.
    fn learn(&self, host: u64, cupti: u64) {
        let ahead = cupti.wrapping_sub(host).cast_signed();
        let Ok(mut first) = self.first.lock() else {
            return;
        };
        let Some((then, ahead_then)) = *first else {
            *first = Some((host, ahead));
            return;
        };
        if host.saturating_sub(then) < LEAST_APART_NS {
            return;
        }
        let alike = ahead.abs_diff(ahead_then) <= MOST_DRIFT_NS;
        self.ahead
            .store(if alike { ahead } else { UNLIKE }, Ordering::Relaxed);
        *first = Some((host, ahead));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_run_alike_are_told_from_those_that_do_not() {
        const SECOND: u64 = 1_000_000_000;
        let known = |pairs: &[(u64, u64)]| {
            let clock = IssueClock::default();
            for (host, cupti) in pairs {
                clock.learn(*host, *cupti);
            }
            clock.ahead.load(Ordering::Relaxed)
        };
        assert_eq!(
            known(&[(SECOND, 5 * SECOND)]),
            UNLIKE,
            "one pair proves nothing"
        );
        let soon = [(SECOND, 5 * SECOND), (SECOND + 1000, 5 * SECOND + 1000)];
        assert_eq!(known(&soon), UNLIKE, "nor do two at almost one time");
        let alike = [(SECOND, 5 * SECOND), (2 * SECOND, 6 * SECOND + 700)];
        assert_eq!(known(&alike), 4_000_000_700);
        let behind = [(5 * SECOND, SECOND), (6 * SECOND, 2 * SECOND)];
        assert_eq!(known(&behind), -4_000_000_000);
        // Virtual time that stands still while the host's runs, before or after it ran along.
        let still = [(SECOND, 5 * SECOND), (2 * SECOND, 5 * SECOND)];
        assert_eq!(known(&still), UNLIKE);
        let stops = [alike[0], alike[1], (3 * SECOND, 6 * SECOND + 700)];
        assert_eq!(known(&stops), UNLIKE, "clocks that part are found out");
    }

    #[test]
    fn without_cupti_time_passes_as_the_hosts() {
        let clock = Clock::start(None);
        let first = clock.now();
        assert!(clock.now() >= first && first < Nanos(1_000_000_000));
        assert_eq!(Clock::starting_at(50).time(49), Nanos(0));
        assert_eq!(Clock::starting_at(50).time(53), Nanos(3));
    }
}

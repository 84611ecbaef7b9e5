//! Times of a trace: nanoseconds since its start, on the host's monotonic clock. CUPTI counts on a
//! clock of its own, so both are read around each other and the offset is kept.

use transit_format::ids::Nanos;

/// Samples per reading; the tightest pair counts.
const SAMPLES: u32 = 16;
/// A new offset is believed once it differs by this much: less is reading noise, more is a clock
/// that was stepped or drifts.
const TRUSTED_ERROR_NS: i64 = 50_000;

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The clocks of one trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
    /// CUPTI's time minus the monotonic clock's.
    offset_ns: Option<i64>,
}

impl Clock {
    /// A trace that starts now.
    pub(crate) fn start() -> Self {
        Self::starting_at(monotonic_ns())
    }

    pub(crate) fn starting_at(start_ns: u64) -> Self {
        Self {
            start_ns,
            offset_ns: None,
        }
    }

    /// Trace time of a monotonic time. A time before the start is the start.
    pub(crate) fn of_host(&self, host_ns: u64) -> Nanos {
        Nanos(host_ns.saturating_sub(self.start_ns))
    }

    /// Trace time now.
    pub(crate) fn now(&self) -> Nanos {
        self.of_host(monotonic_ns())
    }

    /// Trace time of a CUPTI time; the same number of nanoseconds if the clocks were never
    /// compared.
    pub(crate) fn of_cupti(&self, cupti_ns: u64) -> Nanos {
        let host_ns = cupti_ns
            .checked_add_signed(-self.offset_ns.unwrap_or(0))
            .unwrap_or(0);
        self.of_host(host_ns)
    }

    /// Compares the clocks. `cupti_now` gives CUPTI's time, or nothing if it cannot.
    pub(crate) fn compare(&mut self, cupti_now: impl Fn() -> Option<u64>) {
        let mut best: Option<(u64, i64)> = None;
        for _ in 0..SAMPLES {
            let before = monotonic_ns();
            let Some(cupti) = cupti_now() else { return };
            let after = monotonic_ns();
            let width = after - before;
            let middle = before + width / 2;
            let offset = cupti.cast_signed().wrapping_sub(middle.cast_signed());
            if best.is_none_or(|(least, _)| width < least) {
                best = Some((width, offset));
            }
        }
        let Some((_, offset)) = best else { return };
        let known = self.offset_ns.unwrap_or(i64::MIN);
        if offset.saturating_sub(known).saturating_abs() > TRUSTED_ERROR_NS {
            self.offset_ns = Some(offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_clock_is_brought_to_trace_time() {
        let mut clock = Clock::start();
        let ahead = 1_700_000_000_000_000_000;
        clock.compare(|| Some(monotonic_ns() + ahead));
        let now = monotonic_ns();
        let error = clock.of_cupti(now + ahead).0.abs_diff(clock.of_host(now).0);
        assert!(error < 1_000_000, "{error} ns");
        clock.compare(|| None);
        assert!(clock.of_cupti(now + ahead).0.abs_diff(clock.of_host(now).0) < 1_000_000);
    }

    #[test]
    fn a_stepped_clock_is_followed_and_times_before_the_start_are_the_start() {
        let mut clock = Clock::starting_at(1_000);
        clock.compare(|| Some(0));
        assert_eq!(clock.of_host(10), Nanos(0));
        clock.compare(|| Some(monotonic_ns() + 5));
        assert!(clock.of_cupti(monotonic_ns()).0 > 0);
    }
}

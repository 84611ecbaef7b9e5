//! Times as job tables write them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// What a field says about a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Milliseconds since 1970, or since whatever the table counts from.
    At(u64),
    /// Nothing yet, or never: empty, `Unknown`, `None`, `NaT`.
    None,
    /// Before the table's zero.
    Negative,
    /// No time at all.
    Unreadable,
}

/// Reads a time: seconds as a number, or a date and time with `T` or a space between; without an
/// offset it stands in `zone`.
#[must_use]
pub fn parse(text: &str, zone: &TimeZone) -> Time {
    let text = text.trim();
    match seconds(text) {
        Time::Unreadable => {}
        time => return time,
    }
    let stamp: Option<Timestamp> = text.parse().ok().or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        zone.to_timestamp(civil).ok()
    });
    match stamp.map(Timestamp::as_millisecond) {
        Some(ms) => u64::try_from(ms).map_or(Time::Negative, Time::At),
        None => Time::Unreadable,
    }
}

/// Largest number of seconds that is a time: the year 9999 as Unix time.
const MAX_SECONDS: f64 = 253_402_300_800.0;

/// Reads a number of seconds, and nothing else.
#[must_use]
pub fn seconds(text: &str) -> Time {
    match text.trim() {
        "" | "Unknown" | "None" | "N/A" | "NaT" | "nan" | "NaN" | "null" => return Time::None,
        _ => {}
    }
    match text.trim().parse::<f64>() {
        Ok(v) if v < 0.0 => Time::Negative,
        Ok(v) if v <= MAX_SECONDS => Time::At((v * 1000.0).round() as u64),
        _ => Time::Unreadable,
    }
}

/// Slurm's `[days-]hours:minutes:seconds`, also `minutes:seconds`, in milliseconds.
#[must_use]
pub fn elapsed(text: &str) -> Option<u64> {
    let (days, clock) = match text.trim().split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text.trim()),
    };
    let mut total_s = 0_u64;
    let parts: Vec<&str> = clock.split(':').collect();
    if !(2..=3).contains(&parts.len()) || days > 1_000_000 {
        return None;
    }
    let (last, whole) = parts.split_last()?;
    for part in whole {
        total_s = total_s * 60 + part.parse::<u64>().ok().filter(|&v| v < 1_000_000)?;
    }
    let seconds: f64 = last.parse().ok().filter(|s| (0.0..60.0).contains(s))?;
    let whole_ms = (total_s * 60 + days * 86_400) * 1000;
    Some(whole_ms + (seconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_tables_are_read() {
        let utc = TimeZone::UTC;
        let at = Time::At(1_684_321_258_000);
        assert_eq!(parse("2023-05-17 11:00:58+00:00", &utc), at);
        assert_eq!(parse("2023-05-17 19:00:58+08:00", &utc), at);
        assert_eq!(parse("2023-05-17T11:00:58", &utc), at);
        assert_eq!(parse("2023-05-17T11:00:58Z", &utc), at);
        assert_eq!(parse("1684321258", &utc), at);
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(parse("2023-05-17T13:00:58", &berlin), at);
        assert_eq!(parse("Unknown", &utc), Time::None);
        assert_eq!(parse("-5", &utc), Time::Negative);
        assert_eq!(parse("1969-12-31T23:00:00", &utc), Time::Negative);
        for wrong in ["soon", "2023-13-01 00:00:00", "1e300", "inf"] {
            assert_eq!(parse(wrong, &utc), Time::Unreadable, "{wrong}");
        }
    }

    #[test]
    fn a_date_is_no_number_of_seconds() {
        assert_eq!(seconds(" 30.5 "), Time::At(30_500));
        assert_eq!(seconds("NaN"), Time::None);
        assert_eq!(seconds("-1"), Time::Negative);
        for wrong in ["2026-01-01", "00:00:30", "1e300", "inf", "NAN"] {
            assert_eq!(seconds(wrong), Time::Unreadable, "{wrong}");
        }
    }

    #[test]
    fn slurm_durations_are_read() {
        assert_eq!(elapsed("1-02:03:04"), Some(93_784_000));
        assert_eq!(elapsed("00:00:30"), Some(30_000));
        assert_eq!(elapsed("05:07.5"), Some(307_500));
        for wrong in [
            "",
            "30",
            "a:b:c",
            "1-",
            "00:00:61",
            "9999999999999-00:00:00",
        ] {
            assert_eq!(elapsed(wrong), None, "{wrong}");
        }
    }
}

//! How numbers read: bytes in binary units, times in the unit that keeps three digits, rates in
//! GB/s (1e9, as links are specified), dates in UTC.

/// Bytes with a binary unit: `512 B`, `64 KiB`, `4.85 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1023.995 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or("B");
    if (scaled - scaled.round()).abs() < 0.005 {
        format!("{scaled:.0} {name}")
    } else if scaled < 100.0 {
        format!("{scaled:.2} {name}")
    } else {
        format!("{scaled:.1} {name}")
    }
}

/// A count with thousands separated: `12,940`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 launch`, `2 launches`: a count with its noun.
#[must_use]
pub fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

/// Nanoseconds in the unit that keeps about three digits: `740 ns`, `12.4 us`, `368 ms`, `1.96 s`.
#[must_use]
pub fn duration(ns: f64) -> String {
    let (scaled, unit) = match ns {
        n if n < 1e3 => return format!("{n:.0} ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// A rate in GB/s from bytes and nanoseconds; `-` where no time passed.
#[must_use]
pub fn rate(bytes: f64, ns: f64) -> String {
    if ns <= 0.0 {
        return "-".to_owned();
    }
    gb_per_s(bytes / ns)
}

/// A rate that is in GB/s already (bytes per nanosecond).
#[must_use]
pub fn gb_per_s(value: f64) -> String {
    format!("{} GB/s", three_digits(value))
}

/// A ratio: `0.34x`.
#[must_use]
pub fn ratio(value: f64) -> String {
    match value {
        v if v >= 99.5 => format!("{v:.0}x"),
        v if v >= 9.95 => format!("{v:.1}x"),
        v if v > 0.0 && v < 0.005 => format!("{v:.4}x"),
        v => format!("{v:.2}x"),
    }
}

/// A number with about three significant digits.
#[must_use]
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Unix seconds as `2026-11-29 23:31 UTC` (Howard Hinnant's days-to-civil algorithm,
/// <https://howardhinnant.github.io/date_algorithms.html>).
#[must_use]
pub fn date(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (unix_s % 86_400 / 3_600, unix_s % 3_600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// `cuDriverGetVersion`'s number as people write it: 13000 is `13.0`.
#[must_use]
pub fn cuda_version(value: u32) -> String {
    format!("{}.{}", value / 1_000, value % 1_000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_round_values_round() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(2 << 20), "2 MiB");
        assert_eq!(bytes((1 << 30) - 1), "1 GiB");
        assert_eq!(bytes(5_207_647_846), "4.85 GiB");
        assert_eq!(bytes(700 << 20), "700 MiB");
    }

    #[test]
    fn counts_durations_and_rates_read_well() {
        assert_eq!(count(7), "7");
        assert_eq!(count(12_940), "12,940");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(duration(740.0), "740 ns");
        assert_eq!(duration(12_440.0), "12.4 us");
        assert_eq!(duration(1_960e6), "1.96 s");
        assert_eq!(rate(55.1e9, 1e9), "55.1 GB/s");
        assert_eq!(rate(1.0, 0.0), "-");
        assert_eq!(ratio(0.03), "0.03x");
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_995_060), "2026-11-29 23:31 UTC");
    }
}

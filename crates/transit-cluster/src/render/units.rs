//! How numbers read.

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

/// A number with about three significant digits, thousands separated.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => count_signed(value),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{value:.2}"),
        v => {
            let zeros = -v.log10().floor();
            format!("{value:.*}", (2.0 + zeros).min(12.0) as usize)
        }
    }
}

/// A number at an axis: no needless decimals.
#[must_use]
pub fn tick(value: f64) -> String {
    if value.abs() >= 1000.0 {
        return count_signed(value);
    }
    format!("{}", (value * 1000.0).round() / 1000.0)
}

fn count_signed(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", count(value.abs().round() as u64))
}

/// Seconds in the unit that people would use: `12.4 s`, `3.2 min`, `5.1 h`, `2.3 d`.
#[must_use]
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v < 0.0005 => "0 s".to_owned(),
        v if v < 120.0 => format!("{} s", number(value)),
        v if v < 7_200.0 => format!("{} min", number(value / 60.0)),
        v if v < 172_800.0 => format!("{} h", number(value / 3600.0)),
        _ => format!("{} d", number(value / 86_400.0)),
    }
}

/// A share in percent: `40.6 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A change in percent, with its sign: `-24.2 %`; `-` where there is nothing to compare with.
#[must_use]
pub fn change(from: f64, to: f64) -> String {
    relative(from, to).map_or_else(|| "-".to_owned(), signed_percent)
}

/// A share with its sign: `+5.2 %`.
#[must_use]
pub fn signed_percent(share: f64) -> String {
    let text = format!("{:+.1} %", share * 100.0);
    text.replace("+0.0 %", "0.0 %").replace("-0.0 %", "0.0 %")
}

/// A change relative to where it came from; none from nothing.
#[must_use]
pub fn relative(from: f64, to: f64) -> Option<f64> {
    if from == 0.0 {
        return (to == 0.0).then_some(0.0);
    }
    Some((to - from) / from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(number(-1234.5), "-1,235");
        assert_eq!(number(40.56), "40.6");
        assert_eq!(number(1.0), "1.00");
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(0.11432), "0.114");
        assert_eq!(number(-0.000_504_3), "-0.000504");
        assert_eq!(seconds(0.0), "0 s");
        assert_eq!(seconds(90.0), "90.0 s");
        assert_eq!(seconds(5400.0), "90.0 min");
        assert_eq!(change(200.0, 150.0), "-25.0 %");
        assert_eq!(change(0.0, 1.0), "-");
        assert_eq!(signed_percent(-0.0001), "0.0 %");
    }
}

//! Formats numbers for people.

use bytesize::ByteSize;

/// Formats a count, like `117,659`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun, like `1 row` or `117,659 rows`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a number of bytes, like `1.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// Formats a duration in microseconds with three digits: `950 µs`, `1.23 ms`, `12.3 s`.
pub fn micros(us: f64) -> String {
    let (number, unit) = match us {
        us if us < 999.5 => (us, "µs"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", three_digits(number))
}

/// Formats a rate: rounded to a whole number, like `512,345`, or with three digits below 1,000, like `12.3`.
pub fn rate(number: f64) -> String {
    if number >= 999.5 { count(number.round() as u64) } else { three_digits(number) }
}

fn three_digits(number: f64) -> String {
    match number {
        0.0 => "0".into(),
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        assert_eq!(
            [0, 999, 1000, 117_659, 1_234_567].map(count),
            ["0", "999", "1,000", "117,659", "1,234,567"]
        );
        assert_eq!(
            [0.0, 0.5, 950.0, 1_234.0, 12_345.0, 999_400.0, 12_300_000.0].map(micros),
            ["0 µs", "0.50 µs", "950 µs", "1.23 ms", "12.3 ms", "999 ms", "12.3 s"]
        );
        assert_eq!([0.25, 12.34, 999.0, 512_345.4].map(rate), ["0.25", "12.3", "999", "512,345"]);
        assert_eq!(
            [0, 1, 1000].map(|n| counted(n, "row", "rows")),
            ["0 rows", "1 row", "1,000 rows"]
        );
        assert_eq!(bytes(1536 << 10), "1.5 MiB");
    }
}

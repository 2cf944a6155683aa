//! The parent span of a request, in the `traceparent` format of W3C Trace Context.

use std::fmt;

/// The length of a `traceparent` of version 00, in bytes.
const VERSION_00_BYTES: usize = 55;

/// A span of a trace, as the parent of other spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentSpan {
    /// The id of the trace; not 0.
    pub trace: u128,
    /// The id of the span; not 0.
    pub span: u64,
    /// Whether the trace is sampled. If so, its spans are exported even if they are neither slow nor failed. A node may
    /// clear this if its callers sample too many requests.
    pub is_sampled: bool,
}

impl ParentSpan {
    /// Parses a `traceparent` of version 00 or later: `00-<32 hexadecimal digits>-<16>-<2>`. Returns `None` for any
    /// other text, which W3C Trace Context says to ignore.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.trim().as_bytes().split_at_checked(VERSION_00_BYTES)?;
        let version = hex(&known[..2])?;
        let trace = hex(&known[3..35])?;
        let span = hex(&known[36..52])? as u64;
        let flags = hex(&known[53..])?;
        let is_divided = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        // A later version may append more fields.
        let is_whole = rest.is_empty() || version > 0 && rest[0] == b'-';
        let is_known = is_divided && is_whole && version < 0xff;
        let is_sampled = flags & 1 == 1;
        (is_known && trace != 0 && span != 0).then_some(Self { trace, span, is_sampled })
    }

    /// Returns the id of the trace in the form that logs and tracing backends use.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }
}

/// Writes a `traceparent` of version 00.
impl fmt::Display for ParentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each batch has a `traceparent`. Filling in the digits takes half the time of the formatting macros.
        let mut text = *b"00-________________________________-________________-__";
        write_hex(self.trace, &mut text[3..35]);
        write_hex(self.span.into(), &mut text[36..52]);
        write_hex(self.is_sampled.into(), &mut text[53..]);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

fn write_hex(value: u128, digits: &mut [u8]) {
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(value >> (4 * at)) as usize & 15];
    }
}

fn hex(digits: &[u8]) -> Option<u128> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    digits.iter().try_fold(0, |read, &digit| Some(read << 4 | u128::from(value(digit)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_round_trips() {
        let parent = ParentSpan { trace: 0x0af7_6519, span: 0xb7ad, is_sampled: true };
        let text = parent.to_string();
        assert_eq!(text, "00-0000000000000000000000000af76519-000000000000b7ad-01");
        assert_eq!(ParentSpan::parse(&text), Some(parent));
    }

    #[test]
    fn invalid_text_is_ignored() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert!(ParentSpan::parse(good).is_some_and(|it| !it.is_sampled));
        assert!(ParentSpan::parse(&format!("cc{}-what-follows", &good[2..])).is_some());
        for bad in [
            "",
            &good[..54],
            &good.to_uppercase(),
            &format!("{good}-00"),
            &format!("ff{}", &good[2..]),
            &format!("cc{}x", &good[2..]),
            &good.replacen('-', "_", 1),
            &format!("{}_00", &good[..52]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-00",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-00",
        ] {
            assert_eq!(ParentSpan::parse(bad), None, "{bad}");
        }
    }
}

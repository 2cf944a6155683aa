//! The span that another one is within, as it travels: W3C Trace Context's `traceparent`.

use std::fmt;

/// A span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentSpan {
    /// The trace; not 0.
    pub trace: u128,
    /// The span; not 0.
    pub span: u64,
    /// Whether the trace is told of, by who began it.
    pub is_sampled: bool,
}

impl ParentSpan {
    /// Reads a `traceparent`: `00-<32 hexadecimal digits>-<16>-<2>`, of this or a later version. `None` for anything
    /// else, which is as good as nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.trim().split('-');
        let version = hex(fields.next()?, 2)?;
        let trace = hex(fields.next()?, 32)?;
        let span = hex(fields.next()?, 16)? as u64;
        let flags = hex(fields.next()?, 2)?;
        let is_known = version < 0xff && (version > 0 || fields.next().is_none());
        let is_sampled = flags & 1 == 1;
        (is_known && trace != 0 && span != 0).then_some(Self { trace, span, is_sampled })
    }

    /// The trace, as logs and tracing backends name it.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }
}

/// As `traceparent`.
impl fmt::Display for ParentSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{:016x}-{:02x}", self.trace_id(), self.span, u8::from(self.is_sampled))
    }
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let is_right = text.len() == digits && text.bytes().all(is_digit);
    is_right.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parent = ParentSpan { trace: 0x0af7_6519, span: 0xb7ad, is_sampled: true };
        let text = parent.to_string();
        assert_eq!(text, "00-0000000000000000000000000af76519-000000000000b7ad-01");
        assert_eq!(ParentSpan::parse(&text), Some(parent));
    }

    #[test]
    fn what_is_none_is_none() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert!(ParentSpan::parse(good).is_some_and(|it| !it.is_sampled));
        assert!(ParentSpan::parse(&format!("cc{}-what-follows", &good[2..])).is_some());
        for bad in [
            "",
            &good[..54],
            &good.to_uppercase(),
            &format!("{good}-00"),
            &format!("ff{}", &good[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-00",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-00",
        ] {
            assert_eq!(ParentSpan::parse(bad), None, "{bad}");
        }
    }
}

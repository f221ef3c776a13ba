//! The identity of a span, and its form in the header `traceparent` (W3C Trace Context).

use std::fmt;

/// The identity of a span within its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace; not zero.
    pub trace_id: u128,
    /// The span; not zero.
    pub span_id: u64,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

impl SpanContext {
    /// Reads the value of the header `traceparent`. Of a version that is not known, the known fields count.
    pub fn parse(header: &str) -> Option<Self> {
        let mut fields = header.trim().split('-');
        let version = hex(fields.next()?, 2)?;
        let trace_id = hex(fields.next()?, 32)?;
        let span_id = hex(fields.next()?, 16)?;
        let flags = hex(fields.next()?, 2)?;
        let is_valid = match version {
            0 => fields.next().is_none(),
            version => version != 0xff,
        };
        (is_valid && trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id: u64::try_from(span_id).ok()?,
            is_sampled: flags & 1 == 1,
        })
    }

    /// The context of a new span, with the flag of its parent. `bits` are random.
    pub(super) fn random(parent: Option<Self>, bits: impl Fn() -> u128) -> Self {
        Self {
            // An id of zeros is invalid.
            trace_id: parent.map_or_else(|| bits() | 1, |parent| parent.trace_id),
            span_id: bits() as u64 | 1,
            is_sampled: parent.is_some_and(|parent| parent.is_sampled),
        }
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(
            f,
            "00-{:032x}-{:016x}-{flags:02x}",
            self.trace_id, self.span_id
        )
    }
}

/// The number that exactly `len` lower-case hexadecimal digits mean.
fn hex(text: &str, len: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != len || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_and_written_unchanged() {
        for header in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0000000000000000000000000000000a-000000000000000b-00",
        ] {
            assert_eq!(SpanContext::parse(header).unwrap().to_string(), header);
        }
    }

    #[test]
    fn later_versions_may_have_more_fields() {
        let header = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more";
        assert!(SpanContext::parse(header).unwrap().is_sampled);
    }

    #[test]
    fn invalid_headers_are_no_context() {
        for header in [
            "",
            "00-0-0-0",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(SpanContext::parse(header), None, "{header}");
        }
    }
}

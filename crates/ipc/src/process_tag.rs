//! The tag of a child: how the server and the child recognize the processes that user code has started.
//!
//! A process inherits the tag in two places, whatever it does to its parents, groups and sessions: in an
//! environment variable, and in the soft limit on file locks. The kernel has not enforced that limit since
//! Linux 2.4, so a large value has no effect, and it stays when a process clears its environment.

/// The name of the limit in `/proc/PID/limits`.
const LIMIT_NAME: &str = "Max file locks";

/// The tag that a child and its descendants have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTag(String);

impl ProcessTag {
    /// The environment variable that holds the tag.
    pub const VARIABLE: &'static str = "TIDEGATE_CHILD";

    /// A tag with this text, which no other child on the machine may have.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value of the environment variable.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The value of the soft limit on file locks: a hash of the text, between 2^61 and 2^62.
    pub fn lock_limit(&self) -> u64 {
        // FNV-1a: server and child are compiled apart and must compute the same value.
        let hash = self
            .0
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        1 << 61 | hash >> 3
    }

    /// Whether a process has the tag. The arguments are the content of its `/proc/PID/environ` and
    /// `/proc/PID/limits`; one that could not be read is empty.
    pub fn is_on(&self, environment: &[u8], limits: &[u8]) -> bool {
        let variable = format!("{}={}", Self::VARIABLE, self.0).into_bytes();
        let in_environment = environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == variable);
        in_environment || lock_limit_in(limits) == Some(self.lock_limit())
    }
}

fn lock_limit_in(limits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(limits).ok()?;
    let values = text
        .lines()
        .find_map(|line| line.strip_prefix(LIMIT_NAME))?;
    values.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(soft: &str) -> Vec<u8> {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max address space         unlimited            unlimited            bytes     \n\
             Max file locks            {soft:<20} unlimited            locks     \n"
        )
        .into_bytes()
    }

    #[test]
    fn a_process_with_one_of_the_two_marks_has_the_tag() {
        let (tag, other) = (ProcessTag::new("7-1"), ProcessTag::new("7-10"));
        let soft = |tag: &ProcessTag| limits(&tag.lock_limit().to_string());
        assert!(tag.is_on(b"A=1\0TIDEGATE_CHILD=7-1\0", b""));
        assert!(tag.is_on(b"", &soft(&tag)));
        assert!(!tag.is_on(b"TIDEGATE_CHILD=7-10\0", &soft(&other)));
        assert!(!tag.is_on(b"", &limits("unlimited")));
        assert!(!tag.is_on(b"", b""));
    }

    #[test]
    fn the_limit_is_too_large_to_have_an_effect() {
        for number in 0..1000 {
            let limit = ProcessTag::new(format!("1-{number}")).lock_limit();
            assert!((1 << 61..1 << 62).contains(&limit), "{limit}");
        }
    }
}

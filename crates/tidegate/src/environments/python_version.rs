//! The version of Python that a model asks for.

use std::fmt;
use std::str::FromStr;

/// The oldest version that can run models.
pub(super) const OLDEST: PythonVersion = PythonVersion {
    major: 3,
    minor: 10,
    patch: None,
};

/// `X.Y` or `X.Y.Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PythonVersion {
    major: u32,
    minor: u32,
    patch: Option<u32>,
}

impl PythonVersion {
    /// The name of the interpreter: `python3.12`.
    pub(super) fn program(self) -> String {
        format!("python{}.{}", self.major, self.minor)
    }

    /// `X.Y`
    pub(super) fn without_patch(self) -> Self {
        Self {
            patch: None,
            ..self
        }
    }

    /// Whether an interpreter of version `other` is what this version asks for.
    pub(crate) fn accepts(self, other: Self) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
            && (self.patch.is_none() || self.patch == other.patch)
    }
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

impl FromStr for PythonVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("`{text}` is not a version of Python such as \"3.12\"");
        let mut parts = text.trim().split('.').map(|part| part.parse().ok());
        let mut next = || {
            parts
                .next()
                .map(|part: Option<u32>| part.ok_or_else(invalid))
        };
        let version = Self {
            major: next().ok_or_else(invalid)??,
            minor: next().ok_or_else(invalid)??,
            patch: next().transpose()?,
        };
        match next() {
            None => Ok(version),
            Some(_) => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_accepts_the_interpreters_that_it_asks_for() {
        let version = |text: &str| text.parse::<PythonVersion>().unwrap();
        assert!(version("3.12").accepts(version("3.12.1")));
        assert!(version("3.12.1").accepts(version("3.12.1")));
        assert!(!version("3.12.1").accepts(version("3.12.2")));
        assert!(!version("3.1").accepts(version("3.10")));
        assert!(version("3.9.18") < OLDEST && version("3.10") >= OLDEST);
        assert_eq!(version("3.12.1").to_string(), "3.12.1");
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in ["", "3", "3.x", "3.12.1.2", ">=3.10", "3."] {
            assert!(text.parse::<PythonVersion>().is_err(), "{text}");
        }
    }
}

//! Formats an error with all its causes on one line, for log messages.

use std::error::Error;
use std::fmt::{self, Display};

/// Displays `error` and all its sources, separated by colons.
pub fn chain(error: &dyn Error) -> impl Display + '_ {
    Chain(error)
}

struct Chain<'a>(&'a dyn Error);

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

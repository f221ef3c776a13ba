//! The value of `--workers`: a number of processes, or the range in which it follows the load.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_runtime::Autoscaling;

/// The most processes of one model.
const MAX_WORKERS: u16 = 256;

/// The number of processes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerCount {
    min: u16,
    max: u16,
}

impl WorkerCount {
    /// Always this many processes.
    pub(crate) fn fixed(count: u16) -> Self {
        Self {
            min: count,
            max: count,
        }
    }

    /// The number of processes at first, and the smallest number.
    pub(crate) fn min(self) -> usize {
        self.min.into()
    }

    /// How the number follows the load, if it is a range.
    pub(crate) fn autoscaling(
        self,
        up_after: Duration,
        down_after: Duration,
    ) -> Option<Autoscaling> {
        (self.min < self.max).then_some(Autoscaling {
            max: self.max.into(),
            up_after,
            down_after,
        })
    }

    /// Parses a number, for commands whose number of processes does not follow the load.
    pub(crate) fn parse_fixed(text: &str) -> Result<Self, String> {
        let count: Self = text.parse()?;
        if count.min < count.max {
            return Err(format!(
                "this command takes only as many jobs as it has processes, so none wait for a process: write a number from 1 to {MAX_WORKERS}"
            ));
        }
        Ok(count)
    }
}

impl FromStr for WorkerCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (number(min), number(max)),
            None => (number(text), number(text)),
        };
        let (Some(min), Some(max)) = (min, max) else {
            return Err(format!(
                "write a number from 1 to {MAX_WORKERS} such as `2`, or a range such as `1..4`"
            ));
        };
        if min == 0 && max > 0 {
            return Err(format!(
                "at least one process must run: write `1..{max}`; to unload a model without requests, add `--idle-timeout 10m`"
            ));
        }
        if min > max {
            return Err(format!("the range is empty: write `{max}..{min}`"));
        }
        if min == 0 || max > MAX_WORKERS {
            return Err(format!("write numbers from 1 to {MAX_WORKERS}"));
        }
        Ok(Self { min, max })
    }
}

impl fmt::Display for WorkerCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            return write!(f, "{}", self.min);
        }
        write!(f, "{}..{}", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_accepted() {
        for text in ["1", "256", "1..4", "2..256"] {
            let count: WorkerCount = text.parse().unwrap();
            assert_eq!(count.to_string(), text);
        }
        let (up, down) = (Duration::from_secs(1), Duration::from_secs(2));
        let range: WorkerCount = "2..5".parse().unwrap();
        assert_eq!(range.min(), 2);
        assert_eq!(
            range.autoscaling(up, down).map(|scaling| scaling.max),
            Some(5)
        );
        assert_eq!(
            "3..3".parse::<WorkerCount>().unwrap().autoscaling(up, down),
            None
        );
    }

    #[test]
    fn an_invalid_value_says_what_to_write() {
        for (text, advice) in [
            ("many", "`1..4`"),
            ("0", "from 1 to 256"),
            ("257", "from 1 to 256"),
            ("0..4", "--idle-timeout"),
            ("4..2", "`2..4`"),
            ("1..", "`1..4`"),
            ("1..300", "from 1 to 256"),
        ] {
            let error = text.parse::<WorkerCount>().unwrap_err();
            assert!(error.contains(advice), "{text}: {error}");
        }
        assert!(WorkerCount::parse_fixed("1..2").is_err());
        assert_eq!(WorkerCount::parse_fixed("2"), Ok(WorkerCount::fixed(2)));
    }
}

//! The value of `--workers`: a number of processes, the range in which it follows the load, or one per GPU.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_runtime::Autoscaling;

/// The most processes of one model.
const MAX_WORKERS: u16 = 256;

/// The number of processes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerCount {
    /// At least `min` and at most `max`.
    Between {
        /// The number at first.
        min: u16,
        /// The same as `min` for a number that does not change.
        max: u16,
    },
    /// As many as there are GPUs for; one for a model that uses none.
    Auto,
}

impl WorkerCount {
    /// Always this many processes.
    pub(crate) fn fixed(count: u16) -> Self {
        Self::Between {
            min: count,
            max: count,
        }
    }

    /// The number of processes at first of a model for which there are GPUs for `gpu_places` processes.
    pub(crate) fn children(self, gpu_places: Option<usize>) -> usize {
        match self {
            Self::Between { min, .. } => min.into(),
            Self::Auto => gpu_places.unwrap_or(1).clamp(1, MAX_WORKERS.into()),
        }
    }

    /// How the number follows the load, if it is a range.
    pub(crate) fn autoscaling(
        self,
        up_after: Duration,
        down_after: Duration,
    ) -> Option<Autoscaling> {
        match self {
            Self::Between { min, max } if min < max => Some(Autoscaling {
                max: max.into(),
                up_after,
                down_after,
            }),
            Self::Between { .. } | Self::Auto => None,
        }
    }

    /// Parses a number or `auto`, for commands whose number of processes does not follow the load.
    pub(crate) fn parse_fixed(text: &str) -> Result<Self, String> {
        match text.parse()? {
            Self::Between { min, max } if min < max => Err(format!(
                "this command takes only as many jobs as it has processes, so none wait for a process: write a number from 1 to {MAX_WORKERS}, or `auto`"
            )),
            count => Ok(count),
        }
    }
}

impl FromStr for WorkerCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "auto" {
            return Ok(Self::Auto);
        }
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (number(min), number(max)),
            None => (number(text), number(text)),
        };
        let (Some(min), Some(max)) = (min, max) else {
            return Err(format!(
                "write a number from 1 to {MAX_WORKERS} such as `2`, a range such as `1..4`, or `auto` for one process per GPU"
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
        Ok(Self::Between { min, max })
    }
}

impl fmt::Display for WorkerCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between { min, max } if min == max => min.fmt(out),
            Self::Between { min, max } => write!(out, "{min}..{max}"),
            Self::Auto => out.write_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ranges_and_one_per_gpu_are_accepted() {
        for text in ["1", "256", "1..4", "2..256", "auto"] {
            assert_eq!(text.parse::<WorkerCount>().unwrap().to_string(), text);
        }
        let (up, down) = (Duration::from_secs(1), Duration::from_secs(2));
        let range: WorkerCount = "2..5".parse().unwrap();
        assert_eq!(
            range.autoscaling(up, down).map(|scaling| scaling.max),
            Some(5)
        );
        for fixed in ["3..3", "3", "auto"] {
            let count: WorkerCount = fixed.parse().unwrap();
            assert_eq!(count.autoscaling(up, down), None, "{fixed}");
        }
        let children = |text: &str, places| text.parse::<WorkerCount>().unwrap().children(places);
        assert_eq!(
            [
                children("3", Some(8)),
                children("2..5", Some(8)),
                children("auto", Some(8)),
                children("auto", None)
            ],
            [3, 2, 8, 1]
        );
    }

    #[test]
    fn an_invalid_value_says_what_to_write() {
        for (text, advice) in [
            ("many", "`1..4`"),
            ("", "`auto`"),
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
        assert_eq!(WorkerCount::parse_fixed("auto"), Ok(WorkerCount::Auto));
    }
}

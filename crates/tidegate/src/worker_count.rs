//! The value of `--workers`: a number of processes, or one per GPU.

use std::fmt;
use std::str::FromStr;

/// The most processes of one model.
const MAX_WORKERS: u16 = 256;

/// The number of processes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerCount {
    /// Always this many.
    Fixed(u16),
    /// As many as there are GPUs for; one for a model that uses none.
    Auto,
}

impl WorkerCount {
    /// Always this many processes.
    pub(crate) fn fixed(count: u16) -> Self {
        Self::Fixed(count)
    }

    /// The number of processes of a model for which there are GPUs for `gpu_places` processes.
    pub(crate) fn children(self, gpu_places: Option<usize>) -> usize {
        match self {
            Self::Fixed(count) => count.into(),
            Self::Auto => gpu_places.unwrap_or(1).clamp(1, MAX_WORKERS.into()),
        }
    }
}

impl FromStr for WorkerCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            text => match text.parse() {
                Ok(count @ 1..=MAX_WORKERS) => Ok(Self::Fixed(count)),
                Ok(_) | Err(_) => Err(format!(
                    "write a number from 1 to {MAX_WORKERS}, or `auto` for one process per GPU"
                )),
            },
        }
    }
}

impl fmt::Display for WorkerCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(count) => count.fmt(out),
            Self::Auto => out.write_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_one_per_gpu() {
        for text in ["1", "256", "auto"] {
            assert_eq!(text.parse::<WorkerCount>().unwrap().to_string(), text);
        }
        for text in ["0", "257", "many", "-1", ""] {
            assert!(text.parse::<WorkerCount>().unwrap_err().contains("`auto`"));
        }
        let children = |text: &str, places| text.parse::<WorkerCount>().unwrap().children(places);
        assert_eq!(
            [
                children("3", Some(8)),
                children("auto", Some(8)),
                children("auto", None)
            ],
            [3, 8, 1]
        );
    }
}

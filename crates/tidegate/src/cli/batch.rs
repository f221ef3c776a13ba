//! Arguments of models that batch.

use std::time::Duration;

use clap::Args;
use tidegate_runtime::BatchSettings;

use super::heading;
use crate::units;

/// The settings of batches that take precedence over `@tidegate.batched` in the model's code.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::QUEUE)]
pub(crate) struct BatchArgs {
    /// Predictions that one call of the model's `predict_batch` gets at most [default: from
    /// `@tidegate.batched`, or 16 with --batch-wait; without either, predictions are not batched]
    #[arg(long, env = "TIDEGATE_BATCH_SIZE", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) batch_size: Option<u32>,
    /// Time that a prediction may wait for others of its batch. It waits only if recent load shows that
    /// others will come [default: from `@tidegate.batched`, or 5ms]
    #[arg(long, env = "TIDEGATE_BATCH_WAIT", value_name = "DURATION", value_parser = wait)]
    pub(crate) batch_wait: Option<Duration>,
}

/// The longest wait, here and in the decorator.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn wait(text: &str) -> Result<Duration, String> {
    let wait = units::duration(text)?;
    if wait > MAX_WAIT {
        return Err("write a duration up to 60s".to_owned());
    }
    Ok(wait)
}

impl BatchArgs {
    /// The settings for the model's processes.
    pub(crate) fn settings(&self) -> BatchSettings {
        BatchSettings {
            max_size: self.batch_size,
            max_wait_micros: self.batch_wait.map(|wait| wait.as_micros() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_at_most_a_minute() {
        assert_eq!(wait("60s"), Ok(MAX_WAIT));
        assert_eq!(wait("0s"), Ok(Duration::ZERO));
        assert!(wait("61s").is_err() && wait("1000h").is_err() && wait("soon").is_err());
    }
}

//! The arguments of queues in Redis.

use std::time::Duration;

use clap::Args;
use tidegate_queue::redis::RedisUrls;
use tidegate_queue::upkeep::UpkeepConfig;

use super::heading;
use crate::units;

/// The servers of the queue.
#[derive(Debug, Clone, Args)]
pub(crate) struct RedisArgs {
    /// Redis servers for the queue of waiting jobs: redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// for
    /// TLS, unix:///PATH, or redis+sentinel://HOST,HOST/MASTER. Jobs are pushed to the first server and
    /// read from all [default: the queue is in memory]
    #[arg(long, env = "TIDEGATE_REDIS", value_name = "URL[,URL…]", hide_env_values = true, help_heading = heading::REDIS)]
    pub(crate) redis: Option<RedisUrls>,
    /// Streams of each queue in Redis
    #[arg(long, env = "TIDEGATE_QUEUE_SHARDS", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64), help_heading = heading::REDIS)]
    pub(crate) queue_shards: u16,
    /// Streams of a queue that one account uses
    #[arg(long, env = "TIDEGATE_ACCOUNT_SHARDS", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64), help_heading = heading::REDIS)]
    pub(crate) account_shards: u16,
}

/// The upkeep of the queue.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpkeepArgs {
    /// Mean time between two searches for jobs whose consumer is gone; it varies by half
    #[arg(long, env = "TIDEGATE_SWEEP_INTERVAL", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) sweep_interval: Duration,
    /// Time after which a consumer is gone that does not renew its claim of a job
    #[arg(long, env = "TIDEGATE_SWEEP_IDLE", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) sweep_idle: Duration,
    /// Longest time between two checks of the deadlines of waiting jobs
    #[arg(long, env = "TIDEGATE_DEADLINE_INTERVAL", value_name = "DURATION", default_value = "1s", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) deadline_interval: Duration,
    /// Time between two removals of jobs that ended while they waited
    #[arg(long, env = "TIDEGATE_COLLECT_INTERVAL", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) collect_interval: Duration,
    /// Time between two checks for old messages and stale consumers
    #[arg(long, env = "TIDEGATE_PRUNE_INTERVAL", value_name = "DURATION", default_value = "1h", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) prune_interval: Duration,
    /// Age of an old message, or `never`
    #[arg(long, env = "TIDEGATE_PRUNE_AGE", value_name = "DURATION", default_value = "24h", value_parser = prune_age, help_heading = heading::REDIS)]
    pub(crate) prune_age: PruneAge,
    /// Age of a stale consumer
    #[arg(long, env = "TIDEGATE_CONSUMER_AGE", value_name = "DURATION", default_value = "24h", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) consumer_age: Duration,
    /// Time between two checks whether Redis has lost its data; then waiting jobs are pushed again
    #[arg(long, env = "TIDEGATE_RECONCILE_INTERVAL", value_name = "DURATION", default_value = "5s", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) reconcile_interval: Duration,
    /// Time after which a waiting job is pushed again, in case its message was deleted
    #[arg(long, env = "TIDEGATE_RECHECK_INTERVAL", value_name = "DURATION", default_value = "1h", value_parser = units::positive_duration, help_heading = heading::REDIS)]
    pub(crate) recheck_interval: Duration,
    /// Times that a job is handed out without being started, before it is a dead letter
    #[arg(long, env = "TIDEGATE_MAX_DELIVERIES", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = heading::REDIS)]
    pub(crate) max_deliveries: u32,
}

/// The value of `--prune-age`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PruneAge {
    /// Messages do not get old.
    Never,
    /// Messages get old after this time.
    After(Duration),
}

fn prune_age(text: &str) -> Result<PruneAge, String> {
    match text {
        "never" => Ok(PruneAge::Never),
        text => units::positive_duration(text)
            .map(PruneAge::After)
            .map_err(|error| format!("{error}, or `never`")),
    }
}

impl UpkeepArgs {
    /// The settings of the upkeep loops.
    pub(crate) fn config(&self) -> UpkeepConfig {
        UpkeepConfig {
            deadline_interval: self.deadline_interval,
            sweep_interval: self.sweep_interval,
            sweep_idle: self.sweep_idle,
            max_deliveries: self.max_deliveries,
            collect_interval: self.collect_interval,
            prune_interval: self.prune_interval,
            prune_age: match self.prune_age {
                PruneAge::Never => None,
                PruneAge::After(age) => Some(age),
            },
            consumer_age: self.consumer_age,
            reconcile_interval: self.reconcile_interval,
            recheck_interval: self.recheck_interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        upkeep: UpkeepArgs,
    }

    #[test]
    fn the_defaults_are_those_of_the_loops() {
        let command = Command::parse_from(["command"]);
        assert_eq!(command.upkeep.config(), UpkeepConfig::default());
    }

    #[test]
    fn messages_may_wait_for_ever() {
        let command = Command::parse_from(["command", "--prune-age", "never"]);
        assert_eq!(command.upkeep.config().prune_age, None);
        assert!(Command::try_parse_from(["command", "--prune-age", "old"]).is_err());
    }
}

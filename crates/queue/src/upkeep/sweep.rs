//! Finds jobs whose holder is gone: they were taken, and nobody renews them.

use std::time::Duration;

use tidegate_core::queue::{Consumer, Disposition, Queue, UpkeepHandler};

use super::{UpkeepConfig, said};

/// How many are taken over at once.
const BATCH: usize = 100;

pub(super) async fn run(
    queue: &dyn Queue,
    keeper: &dyn UpkeepHandler,
    consumer: &Consumer,
    rules: UpkeepConfig,
) {
    loop {
        tokio::time::sleep(about(rules.sweep_every)).await;
        loop {
            // This process may have stood still for longer than that.
            said("lost jobs", queue.renew(&keeper.in_hand()).await);
            let lost = said(
                "lost jobs",
                queue.lost(consumer, rules.lost_after, BATCH).await,
            );
            for claim in &lost {
                tracing::warn!(line = %claim.line, job = %claim.entry.id, "whoever worked on a job is gone");
                match keeper.lost(claim).await {
                    Disposition::Remove => drop(said("lost jobs", queue.ack(claim).await)),
                    Disposition::Keep => {}
                }
            }
            if lost.len() < BATCH {
                break;
            }
        }
    }
}

/// Half of it more or less, so that several processes do not look at the same moment.
fn about(pause: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random bits, all look at the same moment.
    getrandom::fill(&mut random).ok();
    pause.mul_f64(0.5 + f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_half_more_or_less() {
        let pauses: Vec<Duration> = (0..1000).map(|_| about(Duration::from_secs(30))).collect();
        let bounds = Duration::from_secs(15)..=Duration::from_secs(45);
        assert!(pauses.iter().all(|pause| bounds.contains(pause)));
        assert!(
            pauses
                .iter()
                .max()
                .is_some_and(|most| *most > Duration::from_secs(30))
        );
        assert!(
            pauses
                .iter()
                .min()
                .is_some_and(|least| *least < Duration::from_secs(30))
        );
    }
}

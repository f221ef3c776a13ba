//! Recovers jobs whose consumer is gone: they were taken, and their claim is not renewed.

use std::time::Duration;

use tidegate_core::queue::{Claim, Disposition, Queue, UpkeepHandler};
use tidegate_core::random;

use super::{UpkeepConfig, or_default};

/// The number of claims that are taken over in one call.
const BATCH: usize = 100;

pub(super) async fn run(queue: &dyn Queue, handler: &dyn UpkeepHandler, config: UpkeepConfig) {
    loop {
        tokio::time::sleep(jittered(config.sweep_interval)).await;
        loop {
            // This process may have been suspended for longer than `sweep_idle`; its own claims are
            // not lost.
            or_default("renew", queue.renew(&handler.active_claims()).await);
            let lost = or_default("lost", queue.lost(config.sweep_idle, BATCH).await);
            for claim in &lost {
                recover(queue, handler, claim, config.max_deliveries).await;
            }
            if lost.len() < BATCH {
                break;
            }
        }
    }
}

async fn recover(
    queue: &dyn Queue,
    handler: &dyn UpkeepHandler,
    claim: &Claim,
    max_deliveries: u32,
) {
    tracing::warn!(queue = %claim.queue, job = %claim.entry.id, deliveries = claim.deliveries, "consumer of job is gone");
    let disposition = if claim.deliveries >= max_deliveries {
        handler.exhausted(claim).await
    } else {
        handler.lost(claim).await
    };
    match disposition {
        Disposition::Remove => drop(or_default("ack", queue.ack(claim).await)),
        Disposition::Keep => {}
        Disposition::PutBack => or_default("put_back", queue.put_back(claim).await),
        Disposition::Bury(reason) => {
            tracing::error!(queue = %claim.queue, job = %claim.entry.id, reason, "moved queue entry to the dead letters");
            or_default("bury", queue.bury(claim, &reason).await);
        }
    }
}

/// The pause, varied randomly by half, so that several processes do not sweep at the same time.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + random::fraction())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_varies_by_half() {
        let pauses: Vec<Duration> = (0..1000)
            .map(|_| jittered(Duration::from_secs(30)))
            .collect();
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

//! Pauses between the attempts to send a message.

use std::time::Duration;

/// The first pause; each following one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause, and the longest that a receiver may request with `retry-after`.
const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);

/// The pause after `failed` attempts. `jitter`, from 0 to 1, spreads it by a quarter in both
/// directions, so that many messages to one receiver are not sent at the same time.
pub(super) fn pause(failed: u32, jitter: f64, retry_after: Option<Duration>) -> Duration {
    let doubled = FIRST_PAUSE
        .saturating_mul(1 << failed.saturating_sub(1).min(20))
        .min(MAX_PAUSE);
    let backoff = doubled.mul_f64(0.75 + jitter / 2.0);
    // The pause is never shorter than the receiver requests; jitter adds up to a tenth.
    let requested = retry_after
        .unwrap_or_default()
        .min(MAX_PAUSE)
        .mul_f64(1.0 + jitter / 10.0);
    backoff.max(requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let seconds = |failed| pause(failed, 0.5, None).as_secs_f64();
        assert!(
            (seconds(1) - 0.2).abs() < 0.001
                && (seconds(2) - 0.4).abs() < 0.001
                && (seconds(5) - 3.2).abs() < 0.001
        );
        assert!((seconds(16) - 3600.0).abs() < 0.001 && (seconds(u32::MAX) - 3600.0).abs() < 0.001);
    }

    #[test]
    fn jitter_spreads_pauses_and_keeps_their_order() {
        for failed in 1..15 {
            let (early, late) = (pause(failed, 0.0, None), pause(failed, 1.0, None));
            assert!(
                late > early.mul_f64(1.6) && late < pause(failed + 1, 0.0, None),
                "{failed}: {early:?} {late:?}"
            );
        }
    }

    #[test]
    fn the_pause_is_at_least_what_the_receiver_requests() {
        let requested = Duration::from_secs(30);
        assert!((30..=33).contains(&pause(1, 1.0, Some(requested)).as_secs()));
        assert!(
            pause(12, 0.0, Some(requested)) > Duration::from_secs(300),
            "a longer backoff wins"
        );
        assert!(
            pause(1, 1.0, Some(Duration::MAX)) <= MAX_PAUSE.mul_f64(1.1),
            "at most an hour plus jitter"
        );
    }
}

//! Jobs that a server before this one has taken, as they were written down.

use std::sync::{Arc, Mutex};

use tidegate_core::record::{Ending, Record};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Job, Live, MAX_METRICS, PREDICT_TIME, State};

impl Job {
    /// A job that is over, as it was written down.
    pub(crate) fn restored(record: Record) -> Self {
        let Record {
            order,
            status,
            started_at,
            ending,
            data_removed,
            ..
        } = record;
        let completed_at = ending.as_ref().map(|ending| ending.completed_at);
        let Ending {
            output,
            logs,
            error,
            mut metrics,
            ..
        } = ending.unwrap_or_else(Ending::of_nothing);
        let state = State {
            status,
            started_at,
            completed_at,
            output: output.into_iter().collect(),
            output_bytes: 0,
            returned: true,
            joined: true,
            logs,
            logs_full: true,
            predict_time: metrics
                .remove(PREDICT_TIME)
                .and_then(|seconds| seconds.as_f64()),
            metrics,
            metrics_count: MAX_METRICS,
            error,
            cancel_asked: false,
            settled: true,
            history: None,
        };
        let live = Live {
            account: order.account,
            id: order.id,
            kind: order.kind,
            face: order.face,
            target: Arc::new(order.target),
            secrets: order.secrets,
            created_at: order.created_at,
            deadline: order.deadline,
            hook: order.hook.map(Arc::new),
            data_removed,
            born: Instant::now(),
            max_output: 0,
            cancel: CancellationToken::new(),
            for_readers: false,
            state: Mutex::new(state),
            changed: Notify::new(),
        };
        Self {
            input: Some(order.input),
            live: Arc::new(live),
        }
    }
}

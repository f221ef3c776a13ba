//! Readers of a job's output and logs, while the model produces many values.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::{Event, Outcome};
use tidegate_service::{Job, OutputCursor, ReadPosition};
use tokio::task::JoinSet;

use crate::expect_new;
use crate::fake_model::{streaming_service, submission, value};

/// The number of readers of each job.
const READERS: usize = 3;

/// The processor time that this thread has used; other processes have no part in it.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .expect("it is positive")
}

async fn read_deltas(job: Arc<Job>) -> usize {
    let mut seen = ReadPosition::default();
    loop {
        let delta = job.progress(seen).await;
        seen.outputs += delta.outputs.len();
        if delta.ended {
            return seen.outputs;
        }
    }
}

async fn read_events(job: Arc<Job>) -> usize {
    let mut seen = OutputCursor::default();
    let mut count = 0;
    loop {
        let next = job.output_events(seen).await;
        let next = next.expect("the job runs once");
        count += next.events.len();
        if let Some(last) = next.events.last() {
            seen.position = last.position();
        }
        if next.ended {
            return count;
        }
    }
}

/// The processor time of a job with so many values, each of which wakes all readers.
async fn time_of(count: usize) -> Duration {
    let (model, jobs) = streaming_service(1);
    let job = Arc::clone(expect_new(jobs.submit(submission("{}")).await).job());
    let run = model.started().await;
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        readers.spawn(read_deltas(Arc::clone(&job)));
        readers.spawn(read_events(Arc::clone(&job)));
    }
    let start = cpu_time();
    for _ in 0..count {
        run.send(Event::Output(value("1")));
        // The tracker runs, and then the readers.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    run.send(Event::Ended(Outcome::Succeeded { output: None }));
    assert_eq!(readers.join_all().await, [count; 2 * READERS]);
    cpu_time() - start
}

#[tokio::test]
async fn ten_times_as_many_values_take_about_ten_times_as_long() {
    let (few, many) = (time_of(1_000).await, time_of(10_000).await);
    let ratio = many.as_secs_f64() / few.as_secs_f64();
    assert!(
        ratio < 30.0,
        "1,000 values took {few:?}, 10,000 took {many:?}; quadratic time has the ratio 100"
    );
}

//! Queued jobs: their order, cancels and deadlines, and jobs whose task is lost.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Claim, Disposition, Priority, QueueEntry, UpkeepHandler};
use tidegate_core::record::{Api, Target};
use tidegate_core::{Account, Event, JobId, Outcome, Status};
use tidegate_service::{Job, JobService, ModelRegistry, ServedVersion, Submission};

use crate::expect_new;
use crate::fake_model::{FakeModel, Run, ServiceOptions, service_with, submission, value};

fn account(name: &str) -> Account {
    Account::parse(name).expect("a valid account")
}

fn id(text: &str) -> JobId {
    JobId::parse(text).expect("a valid id")
}

/// A job of this account, by an API that has a queue.
fn job(owner: &str, name: &str) -> Submission {
    Submission {
        account: account(owner),
        id: Some(id(name)),
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        ..submission("{}")
    }
}

async fn submitted(jobs: &JobService, submission: Submission) -> Arc<Job> {
    Arc::clone(expect_new(jobs.submit(submission).await).job())
}

fn succeed(run: &Run) {
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
}

/// A registry with this one model.
fn models(jobs: &JobService) -> ModelRegistry {
    let models = ModelRegistry::new(jobs.clone());
    let version = ServedVersion {
        jobs: jobs.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
        is_handler: false,
    };
    models.offer(version);
    models
}

#[tokio::test]
async fn the_time_to_retry_grows_with_the_waiting_jobs() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    submitted(&jobs, job("ann", "first")).await;
    let _run = model.started().await;
    assert_eq!(jobs.retry_after().as_secs(), 2);
    for name in ["second", "third"] {
        submitted(&jobs, job("ann", name)).await;
    }
    assert_eq!(jobs.retry_after().as_secs(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_alternate_and_each_is_first_in_first_out() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    let mut all = vec![submitted(&jobs, job("large", "first")).await];
    let mut run = model.started().await;
    for n in 0..4 {
        all.push(submitted(&jobs, job("large", &format!("large-{n}"))).await);
    }
    for n in 0..2 {
        all.push(submitted(&jobs, job("small", &format!("small-{n}"))).await);
    }
    let mut order = Vec::new();
    for _ in 1..all.len() {
        succeed(&run);
        run = model.started().await;
        // The slot is free before the end of the previous job is visible.
        order.push(loop {
            let running: Vec<_> = all
                .iter()
                .filter(|job| job.status() == Status::Processing)
                .collect();
            match running[..] {
                [one] => break one.id().to_string(),
                _ => tokio::task::yield_now().await,
            }
        });
    }
    assert_eq!(
        order,
        [
            "large-0", "small-0", "large-1", "small-1", "large-2", "large-3"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_is_canceled_at_once_and_the_next_one_runs() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    submitted(&jobs, job("ann", "first")).await;
    let run = model.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    let next = submitted(&jobs, job("ann", "next")).await;
    assert!(jobs.cancel(&account("ann"), &id("waits")).await.unwrap());
    waits.ended().await;
    assert_eq!(
        (waits.status(), next.status()),
        (Status::Canceled, Status::Queued)
    );
    assert!(
        !jobs.cancel(&account("ann"), &id("waits")).await.unwrap(),
        "the job has ended"
    );
    succeed(&run);
    succeed(&model.started().await);
    next.ended().await;
    assert_eq!((model.starts(), next.status()), (2, Status::Succeeded));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_is_aborted_at_its_deadline() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    let models = models(&jobs);
    submitted(&jobs, job("ann", "first")).await;
    let _run = model.started().await;
    let late = submitted(
        &jobs,
        Submission {
            deadline: Some(Duration::from_millis(50)),
            ..job("ann", "late")
        },
    )
    .await;
    let config = tidegate_queue::upkeep::UpkeepConfig::default();
    let upkeep = tidegate_queue::upkeep::run(models.queue(), Arc::new(models.clone()), config);
    tokio::select! {
        () = late.ended() => {}
        () = upkeep => unreachable!("upkeep does not return"),
    }
    assert_eq!((late.status(), model.starts()), (Status::Aborted, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_close_finishes_waiting_jobs() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    submitted(&jobs, job("ann", "first")).await;
    let run = model.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    let model_runs = async {
        succeed(&run);
        succeed(&model.started().await);
    };
    let (in_time, ()) = tokio::join!(jobs.close(Duration::from_secs(30)), model_runs);
    assert!(in_time && waits.status() == Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_task_is_lost_fails_and_its_waiters_are_notified() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    let models = models(&jobs);
    let lost = submitted(&jobs, job("ann", "lost")).await;
    let _run = model.started().await;
    let queue = tidegate_core::queue::QueueName::new("any");
    let entry = QueueEntry {
        account: account("ann"),
        id: id("lost"),
        priority: Priority::Normal,
        deadline: None,
        details: None,
    };
    let claim = Claim {
        stream: queue.to_shared(),
        queue,
        entry,
        moved: false,
        deliveries: 1,
        ticket: String::new(),
    };
    assert!(!models.prune(&claim.entry).await);
    assert_eq!(models.lost(&claim).await, Disposition::Remove);
    lost.ended().await;
    assert!(
        lost.snapshot()
            .error
            .is_some_and(|error| error.contains("was lost"))
    );
    assert!(models.prune(&claim.entry).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_version_finishes_its_queue() {
    let (old, new_model) = (
        FakeModel::without_streaming(1),
        FakeModel::without_streaming(1),
    );
    let jobs = service_with(old.clone(), ServiceOptions::default());
    let models = models(&jobs);
    submitted(&jobs, job("ann", "runs")).await;
    let run = old.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    let target = Target {
        version: "1".repeat(64),
        ..jobs.target().clone()
    };
    let next = jobs.for_version(Arc::new(new_model.clone()), target);
    models.offer(ServedVersion {
        jobs: next.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
        is_handler: false,
    });
    submitted(&next, job("ann", "newer")).await;
    succeed(&new_model.started().await);
    succeed(&run);
    succeed(&old.started().await);
    waits.ended().await;
    assert_eq!(
        (old.starts(), new_model.starts(), waits.status()),
        (2, 1, Status::Succeeded)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_does_not_start_a_job_after_its_deadline() {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    submitted(&jobs, job("ann", "first")).await;
    let run = model.started().await;
    // Upkeep does not run here: only the director checks the deadline.
    let late = submitted(
        &jobs,
        Submission {
            deadline: Some(Duration::from_millis(1)),
            ..job("ann", "late")
        },
    )
    .await;
    let in_time = submitted(&jobs, job("ann", "in-time")).await;
    while late
        .snapshot()
        .deadline
        .is_some_and(|at| Timestamp::now() <= at)
    {
        tokio::task::yield_now().await;
    }
    succeed(&run);
    succeed(&model.started().await);
    tokio::join!(late.ended(), in_time.ended());
    assert_eq!(
        (late.status(), in_time.status(), model.starts()),
        (Status::Aborted, Status::Succeeded, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_served_again_has_its_own_queue() {
    let (old, again) = (
        FakeModel::without_streaming(1),
        FakeModel::without_streaming(1),
    );
    let jobs = service_with(old.clone(), ServiceOptions::default());
    let models = models(&jobs);
    submitted(&jobs, job("ann", "runs")).await;
    let run = old.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    models.withdraw(&jobs.target().model);
    let back = jobs.for_model(Arc::new(again.clone()), jobs.target().clone());
    models.offer(ServedVersion {
        jobs: back.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
        is_handler: false,
    });
    let (first, second) = (
        submitted(&back, job("ann", "first")).await,
        submitted(&back, job("ann", "second")).await,
    );
    succeed(&run);
    succeed(&old.started().await);
    waits.ended().await;
    succeed(&again.started().await);
    succeed(&again.started().await);
    tokio::join!(first.ended(), second.ended());
    assert_eq!(
        (old.starts(), again.starts(), second.status()),
        (2, 2, Status::Succeeded)
    );
}

/// The processor time of a thousand reads of the queue's status, with so many jobs waiting.
async fn time_of_status(waiting: usize) -> Duration {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(model.clone(), ServiceOptions::default());
    for number in 0..=waiting {
        submitted(&jobs, job("ann", &format!("{number}"))).await;
    }
    let _run = model.started().await;
    let start = crate::stream_readers::cpu_time();
    for _ in 0..1_000 {
        assert_eq!(jobs.queue().total.waiting, waiting);
    }
    crate::stream_readers::cpu_time() - start
}

#[tokio::test]
async fn the_status_of_a_long_queue_takes_no_longer_than_of_a_short_one() {
    let (short, long) = (time_of_status(50).await, time_of_status(5_000).await);
    let ratio = long.as_secs_f64() / short.as_secs_f64();
    assert!(
        ratio < 10.0,
        "{short:?} with 50 waiting jobs, {long:?} with 5,000"
    );
}

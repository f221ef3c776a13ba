//! Jobs that wait in a line: who is next, who leaves it early, and what becomes of those whose task is lost.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{Claim, Consumer, Disposition, Priority, QueueEntry, UpkeepHandler};
use tidegate_core::record::{Api, Target};
use tidegate_core::{Account, Event, JobId, Outcome, Status};
use tidegate_service::{Job, JobService, ModelRegistry, ServedVersion, Submission};

use crate::fake::{FakeModel, Run, Wishes, desk_with, submission, value};
use crate::new;

fn account(name: &str) -> Account {
    Account::parse(name).expect("a name")
}

fn id(text: &str) -> JobId {
    JobId::parse(text).expect("an id")
}

/// A job of somebody, by an API that has a queue.
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
    Arc::clone(new(jobs.submit(submission).await).job())
}

fn succeed(run: &Run) {
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
}

/// The models of a server that has this one only.
fn models(jobs: &JobService) -> ModelRegistry {
    let models = ModelRegistry::new(jobs.clone());
    let version = ServedVersion {
        jobs: jobs.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
    };
    models.offer(version);
    models
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_take_turns_and_each_is_first_come_first_served() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes::default());
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
        // The slot is free before anybody can see the end of the one before.
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
async fn who_waits_is_canceled_at_once_and_the_next_has_its_turn() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes::default());
    submitted(&jobs, job("ann", "first")).await;
    let run = model.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    let next = submitted(&jobs, job("ann", "next")).await;
    assert!(jobs.cancel(&account("ann"), &id("waits")).await);
    waits.ended().await;
    assert_eq!(
        (waits.status(), next.status()),
        (Status::Canceled, Status::Queued)
    );
    assert!(
        !jobs.cancel(&account("ann"), &id("waits")).await,
        "it is over"
    );
    succeed(&run);
    succeed(&model.started().await);
    next.ended().await;
    assert_eq!((model.starts(), next.status()), (2, Status::Succeeded));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_who_waits() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes::default());
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
    let rules = tidegate_queue::upkeep::UpkeepConfig::default();
    let upkeep = tidegate_queue::upkeep::run(
        models.queue(),
        Arc::new(models.clone()),
        Consumer::new("test"),
        rules,
    );
    tokio::select! {
        () = late.ended() => {}
        () = upkeep => unreachable!("it runs for ever"),
    }
    assert_eq!((late.status(), model.starts()), (Status::Aborted, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_without_a_store_is_finished_before_the_end() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes::default());
    submitted(&jobs, job("ann", "first")).await;
    let run = model.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    let plays = async {
        succeed(&run);
        succeed(&model.started().await);
    };
    let (in_time, ()) = tokio::join!(jobs.close(Duration::from_secs(30)), plays);
    assert!(in_time && waits.status() == Status::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_task_is_lost_fails_and_whoever_waits_for_it_is_told() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes::default());
    let models = models(&jobs);
    let lost = submitted(&jobs, job("ann", "lost")).await;
    let _run = model.started().await;
    let queue = tidegate_core::queue::QueueName::new("any");
    let entry = QueueEntry {
        account: account("ann"),
        id: id("lost"),
        priority: Priority::Normal,
        deadline: None,
    };
    let claim = Claim {
        queue,
        entry,
        ticket: String::new(),
    };
    assert!(!models.is_over(&claim.entry).await);
    assert_eq!(models.lost(&claim).await, Disposition::Remove);
    lost.ended().await;
    assert!(
        lost.snapshot()
            .error
            .is_some_and(|error| error.contains("was lost"))
    );
    assert!(models.is_over(&claim.entry).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_replaced_works_off_its_line() {
    let (old, new_one) = (
        FakeModel::without_streaming(1),
        FakeModel::without_streaming(1),
    );
    let jobs = desk_with(old.clone(), Wishes::default());
    let models = models(&jobs);
    submitted(&jobs, job("ann", "runs")).await;
    let run = old.started().await;
    let waits = submitted(&jobs, job("ann", "waits")).await;
    let target = Target {
        version: "1".repeat(64),
        ..jobs.target().clone()
    };
    let next = jobs.for_version(Arc::new(new_one.clone()), target);
    models.offer(ServedVersion {
        jobs: next.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
    });
    submitted(&next, job("ann", "newer")).await;
    succeed(&new_one.started().await);
    succeed(&run);
    succeed(&old.started().await);
    waits.ended().await;
    assert_eq!(
        (old.starts(), new_one.starts(), waits.status()),
        (2, 1, Status::Succeeded)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_does_not_begin_with_who_is_too_late() {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes::default());
    submitted(&jobs, job("ann", "first")).await;
    let run = model.started().await;
    // Nobody looks after deadlines here.
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
async fn a_desk_that_comes_back_under_the_same_name_has_its_own_line() {
    let (old, again) = (
        FakeModel::without_streaming(1),
        FakeModel::without_streaming(1),
    );
    let jobs = desk_with(old.clone(), Wishes::default());
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

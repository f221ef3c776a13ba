//! What may happen while a job is being written down: its model is replaced, or the store does not take it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::record::{Api, Target};
use tidegate_core::{Event, JobId, Outcome, Refusal, Status};
use tidegate_service::{Job, JobService, ModelRegistry, ServedVersion, Submission};

use crate::fake::{FakeModel, Run, Wishes, desk_with, submission, value};
use crate::gate::Gate;
use crate::new;

/// Far longer than a version that was replaced still takes jobs.
const LONG_AFTER: Duration = Duration::from_secs(60);

fn job() -> Submission {
    Submission {
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        ..submission("{}")
    }
}

fn named(name: &str) -> Submission {
    Submission {
        id: Some(JobId::parse(name).expect("an id")),
        ..job()
    }
}

fn version(jobs: &JobService) -> ServedVersion {
    ServedVersion {
        jobs: jobs.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
    }
}

fn succeed(run: &Run) {
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
}

/// A model with one slot that is about to be replaced.
struct Replaced {
    gate: Arc<Gate>,
    old: FakeModel,
    jobs: JobService,
    newer: FakeModel,
    models: ModelRegistry,
}

impl Replaced {
    fn new() -> Self {
        let (gate, old) = (Gate::new(), FakeModel::without_streaming(1));
        let jobs = desk_with(
            old.clone(),
            Wishes {
                store: Some(Arc::<Gate>::clone(&gate)),
                attempts: Some(3),
                ..Wishes::default()
            },
        );
        let models = ModelRegistry::new(jobs.clone());
        models.offer(version(&jobs));
        Self {
            gate,
            old,
            jobs,
            newer: FakeModel::without_streaming(1),
            models,
        }
    }

    /// Submits a job and has the version replaced before it is written down; `came` are to be written down then.
    async fn meanwhile(&self, submission: Submission, came: usize) -> Arc<Job> {
        self.gate.hold();
        let replaces = async {
            self.gate.came(came).await;
            let target = Target {
                version: "1".repeat(64),
                ..self.jobs.target().clone()
            };
            self.models.offer(version(
                &self.jobs.for_version(Arc::new(self.newer.clone()), target),
            ));
            // The clock is the test's: this takes no time.
            tokio::time::sleep(LONG_AFTER).await;
            assert!(
                !self.old.stopped().is_cancelled(),
                "somebody still brings it a job"
            );
            self.gate.let_in();
        };
        let (submitted, ()) = tokio::join!(self.jobs.submit(submission), replaces);
        Arc::clone(new(submitted).job())
    }

    /// The job is over, and the version that was replaced ends, and not before.
    async fn is_over(&self, job: &Job) {
        job.ended().await;
        self.old.stopped().cancelled().await;
        assert_eq!((job.status(), self.newer.starts()), (Status::Succeeded, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_runs_once_if_its_version_is_replaced_while_it_is_written_down() {
    let replaced = Replaced::new();
    let first = Arc::clone(new(replaced.jobs.submit(named("first")).await).job());
    let run = replaced.old.started().await;
    let waits = replaced.meanwhile(named("waits"), 2).await;
    succeed(&run);
    first.ended().await;
    succeed(&replaced.old.started().await);
    replaced.is_over(&waits).await;
    assert_eq!(replaced.old.starts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_begun_runs_once_if_its_version_is_replaced_while_it_is_written_down() {
    let replaced = Replaced::new();
    let begun = replaced.meanwhile(job(), 1).await;
    succeed(&replaced.old.started().await);
    replaced.is_over(&begun).await;
    assert_eq!(replaced.old.starts(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_job_that_began_and_was_then_refused_are_removed() {
    let (gate, model, folder) = (
        Gate::new(),
        FakeModel::without_streaming(1),
        tempfile::tempdir().expect("a temporary folder"),
    );
    let scratch = Some(folder.path().join("of-the-job"));
    let jobs = desk_with(
        model.clone(),
        Wishes {
            store: Some(Arc::<Gate>::clone(&gate)),
            attempts: Some(3),
            scratch,
            ..Wishes::default()
        },
    );
    gate.hold();
    gate.break_writing();
    let model_begins = async {
        let mut run = model.started().await;
        std::fs::create_dir(&run.work.scratch).expect("a folder for the job");
        std::fs::write(run.work.scratch.join("output.png"), "much").expect("a file");
        run.send(Event::Output(value("1")));
        gate.let_in();
        run.cancel_was_asked().await;
        run.send(Event::Ended(Outcome::Canceled));
        run.work.scratch
    };
    let (submitted, scratch) = tokio::join!(jobs.submit(job()), model_begins);
    assert_eq!(submitted.err(), Some(Refusal::StoreUnavailable));
    assert!(jobs.close(Duration::from_secs(30)).await);
    assert!(!scratch.exists(), "what it has made is gone");
    assert_eq!(
        (model.free_slots(), jobs.queue()),
        (1, tidegate_service::QueueStatus::default())
    );
}

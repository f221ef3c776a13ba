//! Events while a job is being stored: its version is replaced, or the store fails.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::record::{Api, Target};
use tidegate_core::{Event, JobId, Outcome, Refusal, Status};
use tidegate_service::{Job, JobService, ModelRegistry, ServedVersion, Submission};

use crate::expect_new;
use crate::fake_model::{FakeModel, Run, ServiceOptions, service_with, submission, value};
use crate::faulty_store::FaultyStore;

/// Far longer than a replaced version still accepts jobs.
const AFTER_GRACE: Duration = Duration::from_secs(60);

fn job() -> Submission {
    Submission {
        api: Api::Replicate,
        policies: Api::Replicate.policies(),
        ..submission("{}")
    }
}

fn named(name: &str) -> Submission {
    Submission {
        id: Some(JobId::parse(name).expect("a valid id")),
        ..job()
    }
}

fn version(jobs: &JobService) -> ServedVersion {
    ServedVersion {
        jobs: jobs.clone(),
        created_at: Timestamp::now(),
        description: None,
        folder: "/nonexistent".into(),
        is_handler: false,
    }
}

fn succeed(run: &Run) {
    run.send(Event::Ended(Outcome::Succeeded {
        output: Some(value("1")),
    }));
}

/// A model with one slot whose version is about to be replaced.
struct ReplacedVersion {
    store: Arc<FaultyStore>,
    old: FakeModel,
    jobs: JobService,
    newer: FakeModel,
    models: ModelRegistry,
}

impl ReplacedVersion {
    fn new() -> Self {
        let (store, old) = (FaultyStore::new(), FakeModel::without_streaming(1));
        let jobs = service_with(
            old.clone(),
            ServiceOptions {
                store: Some(Arc::<FaultyStore>::clone(&store)),
                attempts: Some(3),
                ..ServiceOptions::default()
            },
        );
        let models = ModelRegistry::new(jobs.clone());
        models.offer(version(&jobs));
        Self {
            store,
            old,
            jobs,
            newer: FakeModel::without_streaming(1),
            models,
        }
    }

    /// Submits a job and replaces the version before the job is stored. `inserts` is the number of
    /// inserts that the store has received by then.
    async fn submit_while_replaced(&self, submission: Submission, inserts: usize) -> Arc<Job> {
        self.store.hold_inserts();
        let replace = async {
            self.store.wait_for_inserts(inserts).await;
            let target = Target {
                version: "1".repeat(64),
                ..self.jobs.target().clone()
            };
            self.models.offer(version(
                &self.jobs.for_version(Arc::new(self.newer.clone()), target),
            ));
            // The clock is paused: this takes no time.
            tokio::time::sleep(AFTER_GRACE).await;
            assert!(
                !self.old.stopped().is_cancelled(),
                "a job is still being submitted"
            );
            self.store.release_inserts();
        };
        let (submitted, ()) = tokio::join!(self.jobs.submit(submission), replace);
        Arc::clone(expect_new(submitted).job())
    }

    /// Waits until the job has succeeded and the replaced version has stopped.
    async fn wait_for_end(&self, job: &Job) {
        job.ended().await;
        self.old.stopped().cancelled().await;
        assert_eq!((job.status(), self.newer.starts()), (Status::Succeeded, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_job_runs_once_if_its_version_is_replaced_while_it_is_stored() {
    let replaced = ReplacedVersion::new();
    let first = Arc::clone(expect_new(replaced.jobs.submit(named("first")).await).job());
    let run = replaced.old.started().await;
    let waits = replaced.submit_while_replaced(named("waits"), 2).await;
    succeed(&run);
    first.ended().await;
    succeed(&replaced.old.started().await);
    replaced.wait_for_end(&waits).await;
    assert_eq!(replaced.old.starts(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_running_job_runs_once_if_its_version_is_replaced_while_it_is_stored() {
    let replaced = ReplacedVersion::new();
    let begun = replaced.submit_while_replaced(job(), 1).await;
    succeed(&replaced.old.started().await);
    replaced.wait_for_end(&begun).await;
    assert_eq!(replaced.old.starts(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_job_that_began_and_was_then_refused_are_removed() {
    let (store, model, folder) = (
        FaultyStore::new(),
        FakeModel::without_streaming(1),
        tempfile::tempdir().expect("a temporary folder"),
    );
    let scratch = Some(folder.path().join("job"));
    let jobs = service_with(
        model.clone(),
        ServiceOptions {
            store: Some(Arc::<FaultyStore>::clone(&store)),
            attempts: Some(3),
            scratch,
            ..ServiceOptions::default()
        },
    );
    store.hold_inserts();
    store.fail_inserts();
    let model_begins = async {
        let mut run = model.started().await;
        std::fs::create_dir(&run.work.scratch).expect("a folder for the job");
        std::fs::write(run.work.scratch.join("output.png"), "much").expect("a file");
        run.send(Event::Output(value("1")));
        store.release_inserts();
        run.cancel_requested().await;
        run.send(Event::Ended(Outcome::Canceled));
        run.work.scratch
    };
    let (submitted, scratch) = tokio::join!(jobs.submit(job()), model_begins);
    assert_eq!(submitted.err(), Some(Refusal::StoreUnavailable));
    assert!(jobs.close(Duration::from_secs(30)).await);
    assert!(!scratch.exists(), "the files of the job are removed");
    assert_eq!(
        (model.free_slots(), jobs.queue()),
        (1, tidegate_service::QueueStatus::default())
    );
}

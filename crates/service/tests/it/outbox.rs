//! The outbox: webhooks of recorded jobs wait in the store, whatever happens to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::outbox::{
    MessageClaim, MessageFilter, MessageLimits, MessageState, MessageSummary, OutboxMessage,
    TakeRequest,
};
use tidegate_core::policy::UpdatePolicy;
use tidegate_core::record::WebhookSpec;
use tidegate_core::store::{JobRecords, Store};
use tidegate_core::{Account, Event, JobId, Outcome};
use tidegate_net::header::HeaderMap;
use tidegate_net::{AllowedNetworks, Url};
use tidegate_service::{
    EventFilter, JobService, Submission, Webhook, WebhookEvent, WebhookRenderer,
};
use tidegate_store::conformance::samples::{finish, spec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::expect_new;
use crate::fake_model::{FakeModel, ServiceOptions, resume, service_with, submission};
use crate::faulty_store::FaultyStore;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIMIT: Duration = Duration::from_secs(30);
/// No server listens there.
const CLOSED: &str = "127.0.0.1:1";

/// A webhook receiver that counts its requests.
struct TestReceiver {
    address: String,
    requests: Arc<AtomicUsize>,
}

impl TestReceiver {
    /// Responds 200, or never.
    async fn start(responds: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a bound listener").to_string();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let tasks = TaskTracker::new();
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, responds, Arc::clone(&counter)));
            }
        });
        Self { address, requests }
    }

    fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, responds: bool, requests: Arc<AtomicUsize>) {
    let mut seen = Vec::new();
    while stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {
        // Every body is `{}`.
        if !seen.ends_with(b"\r\n\r\n{}") {
            continue;
        }
        seen.clear();
        requests.fetch_add(1, Ordering::SeqCst);
        if responds {
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(response).await.ok();
        }
    }
}

fn service(store: &Arc<FaultyStore>, retry_for: Duration) -> (FakeModel, JobService) {
    service_with_timeout(store, retry_for, LIMIT)
}

fn service_with_timeout(
    store: &Arc<FaultyStore>,
    retry_for: Duration,
    webhook_timeout: Duration,
) -> (FakeModel, JobService) {
    let model = FakeModel::without_streaming(1);
    let options = ServiceOptions {
        store: Some(Arc::<FaultyStore>::clone(store)),
        net: tidegate_net::Config {
            networks: AllowedNetworks::parse("127.0.0.1").expect("a valid address"),
            webhook_timeout,
            ..Default::default()
        },
        retry_for: Some(retry_for),
        ..ServiceOptions::default()
    };
    (model.clone(), service_with(model, options))
}

async fn started(store: &Arc<FaultyStore>, retry_for: Duration) -> (FakeModel, JobService) {
    let (model, jobs) = service(store, retry_for);
    resume(&jobs).await;
    (model, jobs)
}

/// Runs a job to its end, with a webhook to `receiver`.
async fn run_job(model: &FakeModel, jobs: &JobService, name: &str, receiver: &str) {
    let webhook = Webhook {
        url: Url::parse(&format!("http://{receiver}/hook")).expect("a valid URL"),
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: HeaderMap::new(),
        updates: UpdatePolicy::EveryValue,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: WebhookRenderer::new(|_| "{}".into()),
    };
    let ticket = expect_new(
        jobs.submit(Submission {
            id: Some(JobId::parse(name).expect("a valid id")),
            webhook: Some(Arc::new(webhook)),
            ..submission("{}")
        })
        .await,
    );
    model.started().await.send(Event::Ended(Outcome::Canceled));
    ticket.job().ended().await;
}

/// A message of a job that has ended, stored by another server.
fn message(name: &str, receiver: &str) -> OutboxMessage {
    let now = Timestamp::now();
    OutboxMessage {
        id: format!("msg_{name}"),
        account: Account::ANONYMOUS,
        job: JobId::parse(name).expect("a valid id"),
        model: "ann/echo".to_owned(),
        receiver: receiver.to_owned(),
        hook: WebhookSpec {
            url: format!("http://{receiver}/hook"),
            events: vec!["completed".to_owned()],
            headers: Default::default(),
            origin: None,
            streams: false,
            streams_files: false,
            stream_url: None,
        },
        body: "{}".into(),
        created_at: now,
        retry_until: Some(now + DAY),
        attempts: 0,
        claim: None,
    }
}

/// Ends a job with this message, as another server with the same store would.
async fn end_elsewhere(store: &FaultyStore, message: OutboxMessage) {
    let name = message.job.to_string();
    store.insert(spec(&name)).await.expect("the store works");
    let mut end = finish(&name, 0, 1);
    end.message = Some(message);
    store.finish(end).await.expect("the store works");
}

async fn messages(store: &FaultyStore) -> Vec<MessageSummary> {
    let filter = MessageFilter {
        limit: 10_000,
        ..MessageFilter::default()
    };
    store.messages(filter).await.expect("the store works")
}

/// Waits until the only message fulfils a condition.
async fn message_that(
    store: &FaultyStore,
    condition: impl Fn(&MessageSummary) -> bool,
) -> MessageSummary {
    let wait = async {
        loop {
            match messages(store).await.pop() {
                Some(message) if condition(&message) => return message,
                Some(_) | None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .expect("the message changes")
}

async fn wait_for_requests(receiver: &TestReceiver, count: usize) {
    let wait = async {
        while receiver.count() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait)
        .await
        .unwrap_or_else(|_| panic!("{} of {count} requests", receiver.count()));
}

fn is_settled(message: &MessageSummary) -> bool {
    matches!(message.state, MessageState::Settled(_))
}

/// The messages that no running server has claimed.
async fn unclaimed(store: &FaultyStore) -> Vec<OutboxMessage> {
    let unlimited = MessageLimits {
        messages: 10_000,
        bytes: usize::MAX,
    };
    let request = TakeRequest {
        claim: MessageClaim {
            holder: "the test".to_owned(),
            lasts: Duration::ZERO,
        },
        ahead: 2 * DAY,
        total: unlimited,
        per_receiver: unlimited,
        skip: Vec::new(),
    };
    let taken = store.take_messages(request).await;
    taken.expect("the store works").messages
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_and_window_continue_after_a_restart() {
    let store = FaultyStore::new();
    let (model, jobs) = started(&store, DAY).await;
    run_job(&model, &jobs, "mine", CLOSED).await;
    message_that(&store, |message| message.attempts >= 3).await;
    jobs.close(Duration::ZERO).await;
    let before = unclaimed(&store).await.remove(0);

    // Another window is for new messages.
    let (_, jobs) = started(&store, Duration::from_millis(1)).await;
    message_that(&store, |message| message.attempts > before.attempts).await;
    jobs.close(Duration::ZERO).await;
    let after = unclaimed(&store).await.remove(0);

    assert!(after.attempts > before.attempts);
    assert_eq!(
        (&after.id, after.retry_until),
        (&before.id, before.retry_until)
    );
    let window = before.retry_until.expect("it is stored") - before.created_at;
    assert_eq!(window.get_seconds(), 24 * 60 * 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_given_up_when_its_window_ends_and_not_earlier() {
    let store = FaultyStore::new();
    let window = Duration::from_millis(700);
    let (model, jobs) = started(&store, window).await;
    run_job(&model, &jobs, "mine", CLOSED).await;
    let message = message_that(&store, is_settled).await;
    let MessageState::Settled(settled) = &message.state else {
        panic!("{message:?}")
    };
    assert!(settled.at >= message.created_at + window, "{message:?}");
    assert!(message.attempts >= 2, "{message:?}");
    assert_eq!(
        settled.given_up.as_deref(),
        Some("not delivered within --webhook-retry-for")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_window_ended_while_no_server_ran_is_sent_once_more() {
    for (responds, given_up) in [(true, false), (false, true)] {
        let store = FaultyStore::new();
        let receiver = TestReceiver::start(true).await;
        let address = if responds { &receiver.address } else { CLOSED };
        let message = OutboxMessage {
            retry_until: Some(Timestamp::UNIX_EPOCH),
            attempts: 5,
            ..message("mine", address)
        };
        end_elsewhere(&store, message).await;
        let (_, _jobs) = started(&store, DAY).await;
        let message = message_that(&store, is_settled).await;
        let MessageState::Settled(settled) = &message.state else {
            panic!("{message:?}")
        };
        assert_eq!(
            (message.attempts, settled.given_up.is_some()),
            (6, given_up)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_message_is_not_sent_again_when_the_store_fails() {
    let store = FaultyStore::new();
    let receiver = TestReceiver::start(true).await;
    let (model, jobs) = started(&store, DAY).await;
    store.fail_attempt_records(1);
    run_job(&model, &jobs, "mine", &receiver.address).await;
    let message = message_that(&store, is_settled).await;
    assert_eq!((receiver.count(), message.attempts), (1, 1));
}

/// Another process may take it by then, and send a later message about the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_not_sent_when_its_claim_would_end_during_the_attempt() {
    let store = FaultyStore::new();
    let receiver = TestReceiver::start(true).await;
    let timeout = Duration::from_secs(1);
    end_elsewhere(&store, message("late", &receiver.address)).await;
    store.delay_take(timeout + Duration::from_millis(100));
    let (_, jobs) = service_with_timeout(&store, DAY, timeout);
    resume(&jobs).await;
    wait_for_requests(&receiver, 1).await;
    assert!(store.takes() >= 2, "the first time it was left");
    message_that(&store, is_settled).await;
    jobs.close(Duration::ZERO).await;
    assert_eq!(receiver.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_receiver_with_many_messages_leaves_room_for_others() {
    const MANY: usize = 600;
    let store = FaultyStore::new();
    let (hanging, good) = (
        TestReceiver::start(false).await,
        TestReceiver::start(true).await,
    );
    let ends =
        (0..MANY).map(|n| end_elsewhere(&store, message(&format!("a{n}"), &hanging.address)));
    futures_util::future::join_all(ends).await;
    let (model, jobs) = started(&store, DAY).await;
    wait_for_requests(&hanging, 200).await;

    end_elsewhere(&store, message("stored", &good.address)).await;
    run_job(&model, &jobs, "direct", &good.address).await;
    wait_for_requests(&good, 2).await;
    // The hanging receiver has its share; the rest of its messages is not in memory.
    assert!(hanging.count() <= MANY / 2, "{}", hanging.count());
    let state_of = async |name: &str| {
        let job = JobId::parse(name).expect("a valid id");
        let mut all = messages(&store).await.into_iter();
        all.find(|message| message.job == job)
            .expect("the message is stored")
            .state
    };
    run_job(&model, &jobs, "late", &hanging.address).await;
    while !matches!(state_of("late").await, MessageState::Waiting(_)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let claimed = |message: &&MessageSummary| message.state == MessageState::Claimed;
    let count = messages(&store).await.iter().filter(claimed).count();
    assert!(count <= MANY / 2, "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn close_sends_waiting_messages_once_more() {
    let store = FaultyStore::new();
    let (model, jobs) = started(&store, DAY).await;
    run_job(&model, &jobs, "mine", CLOSED).await;
    // The next attempt is due in more than a second.
    let before = message_that(&store, |message| {
        message.attempts >= 5 && matches!(message.state, MessageState::Waiting(_))
    })
    .await;
    jobs.close(Duration::ZERO).await;
    let after = messages(&store).await.remove(0);
    assert!(after.attempts > before.attempts, "{after:?}");
    assert!(!is_settled(&after), "{after:?}");
}

//! The client against small servers on this machine, with resolvers that the test plays.

use std::io::{Seek, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::resolve::Lookup;
use crate::{AllowedNetworks, Client, Config, Error, HttpRequest, MinSpeed, WebhookResponse};

/// A server that gives each connection the next of its answers (the last one stays) and closes it.
struct Host {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Host {
    async fn answering(answers: &[&str]) -> Self {
        Self::start(
            answers.iter().map(|answer| (*answer).to_owned()).collect(),
            Duration::ZERO,
        )
        .await
    }

    /// Sends one byte of its answer's body after each pause.
    async fn dripping(answer: &str, pause: Duration) -> Self {
        Self::start(vec![answer.to_owned()], pause).await
    }

    async fn start(answers: Vec<String>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (
            listener.local_addr().unwrap(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let seen = Arc::clone(&requests);
        // They end with the test's runtime.
        let tasks = TaskTracker::new();
        let inner = tasks.clone();
        tasks.spawn(async move {
            for turn in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let answer = answers[turn.min(answers.len() - 1)].clone();
                let seen = Arc::clone(&seen);
                inner.spawn(async move {
                    let request = read_request(&mut stream).await;
                    seen.lock().unwrap().push(request);
                    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
                    stream
                        .write_all(format!("{head}\r\n\r\n").as_bytes())
                        .await
                        .ok();
                    if pause.is_zero() {
                        stream.write_all(body.as_bytes()).await.ok();
                        return;
                    }
                    for byte in body.bytes() {
                        tokio::time::sleep(pause).await;
                        if stream.write_all(&[byte]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> Url {
        self.named("127.0.0.1")
    }

    fn named(&self, host: &str) -> Url {
        Url::parse(&format!("http://{host}:{}/x", self.address.port())).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return text,
            Ok(n) => request.extend_from_slice(&buffer[..n]),
        }
    }
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn redirect(status: u16, to: &str) -> String {
    format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"
    )
}

/// Answers one list of addresses after the other; the last one stays.
fn playing<const N: usize>(answers: [&'static str; N]) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_| {
        let turn = count.fetch_add(1, Ordering::SeqCst).min(N - 1);
        let found = answers[turn]
            .split(' ')
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), 0))
            .collect();
        async move { Ok(found) }.boxed()
    });
    (lookup, asked)
}

fn open(networks: &str) -> Config {
    Config {
        networks: AllowedNetworks::parse(networks).unwrap(),
        ..Config::default()
    }
}

async fn post(client: &Client, url: &Url) -> Result<WebhookResponse, Error> {
    client
        .post(url, HeaderMap::new(), Bytes::from_static(b"{}"))
        .await
}

async fn download(client: &Client, url: &Url) -> (Result<(), Error>, PathBuf) {
    let place = std::env::temp_dir().join(format!(
        "tidegate-net-{}-{}",
        std::process::id(),
        url.port().unwrap_or(0)
    ));
    let result = client.download(url, &place).await;
    (result, place)
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused() {
    let host = Host::answering(&[&ok("")]).await;
    for addresses in ["127.0.0.1", "1.1.1.1 10.0.0.1", "::ffff:10.0.0.1"] {
        let client = Client::with_lookup(Config::default(), playing([addresses]).0);
        let refused = post(&client, &host.named("intranet.example"))
            .await
            .unwrap_err();
        assert!(refused.is_refusal(), "{addresses:?}: {refused:?}");
        let refused = download(&client, &host.named("intranet.example"))
            .await
            .0
            .unwrap_err();
        assert!(refused.is_refusal(), "{addresses:?}: {refused:?}");
    }
    assert!(host.requests().is_empty());
}

#[tokio::test]
async fn a_literal_private_address_is_refused_without_a_resolver() {
    let host = Host::answering(&[&ok("")]).await;
    let client = Client::new(Config::default());
    assert!(post(&client, &host.url()).await.unwrap_err().is_refusal());
    assert!(
        download(&client, &host.url())
            .await
            .0
            .unwrap_err()
            .is_refusal()
    );
    assert!(host.requests().is_empty());
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let host = Host::answering(&[&ok("")]).await;
    let (lookup, asked) = playing(["127.0.0.1", "127.0.0.9"]);
    let client = Client::with_lookup(open("127.0.0.1"), lookup);
    assert_eq!(
        post(&client, &host.named("rebinding.example"))
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "the name is asked for once per connection"
    );
    assert!(
        post(&client, &host.named("rebinding.example"))
            .await
            .unwrap_err()
            .is_refusal()
    );
    assert_eq!(host.requests().len(), 1);
}

#[tokio::test]
async fn redirects_are_checked_one_by_one() {
    let inside = Host::answering(&[&ok("secret")]).await;
    // The last is a name; the resolver of this test says that it leads inside.
    for target in [
        inside.named("127.0.0.2").as_str(),
        "http://localhost.:1/",
        "http://inside.example/",
    ] {
        let host = Host::answering(&[&redirect(302, target)]).await;
        let client = Client::with_lookup(open("127.0.0.1"), playing(["127.0.0.7"]).0);
        let refused = download(&client, &host.url()).await.0.unwrap_err();
        assert!(refused.is_refusal(), "{target}: {refused:?}");
    }
    let host = Host::answering(&[&redirect(302, "file:///etc/passwd")]).await;
    assert!(
        download(&Client::new(open("127.0.0.1")), &host.url())
            .await
            .0
            .is_err()
    );
    assert!(inside.requests().is_empty());
}

#[tokio::test]
async fn redirects_are_followed_five_times_and_not_more() {
    for (hops, good) in [(5, true), (6, false)] {
        let mut answers = vec![redirect(302, "/next"); hops];
        answers.push(ok("found"));
        let host = Host::start(answers, Duration::ZERO).await;
        let (result, place) = download(&Client::new(open("127.0.0.1")), &host.url()).await;
        assert_eq!(result.is_ok(), good, "{hops}: {result:?}");
        std::fs::remove_file(place).ok();
    }
}

async fn brought(url: Url) -> u16 {
    let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("secret"))]);
    let call = HttpRequest {
        url,
        headers,
        body: Some(Bytes::from_static(b"{\"output\":1}")),
        limit: Duration::from_secs(5),
    };
    Client::new(Config::default())
        .send(call)
        .await
        .unwrap()
        .status
}

#[tokio::test]
async fn what_is_brought_goes_where_the_place_has_moved() {
    for status in [301, 302, 307, 308] {
        let host = Host::answering(&[&redirect(status, "/next"), &ok("")]).await;
        assert_eq!(brought(host.url()).await, 200);
        let last = &host.requests()[1];
        assert!(
            last.starts_with("POST /next ")
                && last.contains("secret")
                && last.ends_with("{\"output\":1}"),
            "{last}"
        );
    }
    let host = Host::answering(&[&redirect(303, "/taken"), &ok("")]).await;
    assert_eq!(brought(host.url()).await, 200);
    assert!(host.requests()[1].starts_with("GET /taken "));
}

#[tokio::test]
async fn a_key_stays_with_the_place_it_is_for() {
    let other = Host::answering(&[&ok("")]).await;
    let host = Host::answering(&[&redirect(307, other.url().as_str())]).await;
    assert_eq!(brought(host.url()).await, 200);
    assert!(!other.requests()[0].contains("secret"));
}

#[tokio::test]
async fn a_place_that_moves_for_ever_is_not_followed_for_ever() {
    let host = Host::answering(&[redirect(302, "/x").as_str(); 10]).await;
    assert_eq!(brought(host.url()).await, 302);
    assert_eq!(host.requests().len(), 6);
}

#[tokio::test]
async fn webhooks_follow_no_redirect_and_read_no_body() {
    let other = Host::answering(&[&ok("")]).await;
    let host = Host::answering(&[&redirect(307, other.url().as_str())]).await;
    let client = Client::new(open("127.0.0.1"));
    assert_eq!(post(&client, &host.url()).await.unwrap().status, 307);
    assert!(other.requests().is_empty());
    let endless = Host::dripping(&ok(&"x".repeat(100_000)), Duration::from_millis(1)).await;
    assert!(post(&client, &endless.url()).await.unwrap().is_success());
}

#[tokio::test]
async fn a_receiver_says_when_to_come_again() {
    let host =
        Host::answering(&["HTTP/1.1 503 x\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"]).await;
    let answer = post(&Client::new(open("127.0.0.1")), &host.url())
        .await
        .unwrap();
    assert_eq!(
        answer,
        WebhookResponse {
            status: 503,
            retry_after: Some(Duration::from_secs(7))
        }
    );
}

#[tokio::test]
async fn downloads_are_bounded_in_size() {
    let announced = Host::answering(&[&ok("123456")]).await;
    let surprising = Host::answering(&["HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n123456"]).await;
    let client = Client::new(Config {
        max_file: 5,
        ..open("127.0.0.1")
    });
    for host in [announced, surprising] {
        let (result, place) = download(&client, &host.url()).await;
        assert!(
            matches!(result, Err(Error::TooLarge { limit: 5, .. })),
            "{result:?}"
        );
        std::fs::remove_file(place).ok();
    }
}

#[tokio::test]
async fn downloads_are_bounded_in_time() {
    let pace = MinSpeed {
        bytes: 1000,
        window: Duration::from_millis(50),
    };
    let ms = Duration::from_millis;
    let cases = [
        (
            "sent nothing",
            Config {
                download_stall_timeout: ms(50),
                ..open("127.0.0.1")
            },
            ms(60_000),
        ),
        (
            "too slowly",
            Config {
                download_min_speed: pace,
                ..open("127.0.0.1")
            },
            ms(10),
        ),
        (
            "took more than",
            Config {
                download_timeout: ms(50),
                ..open("127.0.0.1")
            },
            ms(10),
        ),
    ];
    for (word, config, pause) in cases {
        let host = Host::dripping(&ok(&"x".repeat(100_000)), pause).await;
        let (result, place) = download(&Client::new(config), &host.url()).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
        std::fs::remove_file(place).ok();
    }
}

#[tokio::test]
async fn an_upload_is_sent_again_where_it_is_pointed_to() {
    let target = Host::answering(&["HTTP/1.1 201 x\r\ncontent-length: 0\r\n\r\n"]).await;
    let host = Host::answering(&[&redirect(
        307,
        &format!("{}?signature=secret", target.url()),
    )])
    .await;
    let mut file = tempfile();
    file.write_all(b"hello and more").unwrap();
    // Uploads go where the operator said: no guard.
    let place = Client::new(Config::default())
        .upload(&host.url(), HeaderMap::new(), &file, 5)
        .await
        .unwrap();
    assert_eq!(place, target.url().as_str());
    for host in [host, target] {
        let request = host.requests().remove(0);
        assert!(
            request.starts_with("PUT /x")
                && request.contains("content-length: 5\r\n")
                && request.ends_with("\r\n\r\nhello"),
            "{request}"
        );
    }
}

fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("tidegate-net-upload-{}", std::process::id()));
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file.rewind().unwrap();
    file
}

#[tokio::test]
async fn errors_keep_credentials_and_paths_to_themselves() {
    let client = Client::new(open("127.0.0.1"));
    let url = Url::parse("http://me:hunter2@127.0.0.1:1/hunter2?hunter2").unwrap();
    let mut error: Option<&dyn std::error::Error> = Some(&post(&client, &url).await.unwrap_err());
    while let Some(cause) = error {
        assert!(
            !format!("{cause} {cause:?}").contains("hunter2"),
            "{cause:?}"
        );
        error = cause.source();
    }
}

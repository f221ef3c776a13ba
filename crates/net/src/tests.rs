//! The client against small local servers, with scripted resolvers.

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

use crate::guarded_resolver::Lookup;
use crate::{AllowedNetworks, Client, Config, Error, HttpRequest, MinSpeed, WebhookResponse};

/// A server that sends each connection the next of its responses (the last one repeats) and closes it.
struct TestServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    async fn responding(responses: &[&str]) -> Self {
        Self::start(
            responses
                .iter()
                .map(|response| (*response).to_owned())
                .collect(),
            Duration::ZERO,
        )
        .await
    }

    /// Sends one byte of the body after each pause.
    async fn dripping(response: &str, pause: Duration) -> Self {
        Self::start(vec![response.to_owned()], pause).await
    }

    async fn start(responses: Vec<String>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, requests) = (
            listener.local_addr().unwrap(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let seen = Arc::clone(&requests);
        // The tasks end with the runtime of the test.
        let tasks = TaskTracker::new();
        let inner = tasks.clone();
        tasks.spawn(async move {
            for index in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let response = responses[index.min(responses.len() - 1)].clone();
                let seen = Arc::clone(&seen);
                inner.spawn(async move {
                    let request = read_request(&mut stream).await;
                    seen.lock().unwrap().push(request);
                    let (head, body) = response.split_once("\r\n\r\n").unwrap();
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

/// Resolves to one list of addresses after the other; the last one repeats.
fn scripted_lookup<const N: usize>(responses: [&'static str; N]) -> (Lookup, Arc<AtomicUsize>) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lookups);
    let lookup: Lookup = Arc::new(move |_| {
        let index = count.fetch_add(1, Ordering::SeqCst).min(N - 1);
        let found = responses[index]
            .split(' ')
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), 0))
            .collect();
        async move { Ok(found) }.boxed()
    });
    (lookup, lookups)
}

fn allowing(networks: &str) -> Config {
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
    let path = std::env::temp_dir().join(format!(
        "tidegate-net-{}-{}",
        std::process::id(),
        url.port().unwrap_or(0)
    ));
    let result = client.download(url, &path).await;
    (result, path)
}

#[tokio::test]
async fn a_name_with_a_private_address_is_refused() {
    let host = TestServer::responding(&[&ok("")]).await;
    for addresses in ["127.0.0.1", "1.1.1.1 10.0.0.1", "::ffff:10.0.0.1"] {
        let client = Client::with_lookup(Config::default(), scripted_lookup([addresses]).0);
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
    let host = TestServer::responding(&[&ok("")]).await;
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
    let host = TestServer::responding(&[&ok("")]).await;
    let (lookup, lookups) = scripted_lookup(["127.0.0.1", "127.0.0.9"]);
    let client = Client::with_lookup(allowing("127.0.0.1"), lookup);
    assert_eq!(
        post(&client, &host.named("rebinding.example"))
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        lookups.load(Ordering::SeqCst),
        1,
        "the name is resolved once per connection"
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
    let inside = TestServer::responding(&[&ok("secret")]).await;
    // The last is a name that the test's resolver resolves to a private address.
    for target in [
        inside.named("127.0.0.2").as_str(),
        "http://localhost.:1/",
        "http://inside.example/",
    ] {
        let host = TestServer::responding(&[&redirect(302, target)]).await;
        let client = Client::with_lookup(allowing("127.0.0.1"), scripted_lookup(["127.0.0.7"]).0);
        let refused = download(&client, &host.url()).await.0.unwrap_err();
        assert!(refused.is_refusal(), "{target}: {refused:?}");
    }
    let host = TestServer::responding(&[&redirect(302, "file:///etc/passwd")]).await;
    assert!(
        download(&Client::new(allowing("127.0.0.1")), &host.url())
            .await
            .0
            .is_err()
    );
    assert!(inside.requests().is_empty());
}

#[tokio::test]
async fn at_most_five_redirects_are_followed() {
    for (hops, good) in [(5, true), (6, false)] {
        let mut responses = vec![redirect(302, "/next"); hops];
        responses.push(ok("found"));
        let host = TestServer::start(responses, Duration::ZERO).await;
        let (result, path) = download(&Client::new(allowing("127.0.0.1")), &host.url()).await;
        assert_eq!(result.is_ok(), good, "{hops}: {result:?}");
        std::fs::remove_file(path).ok();
    }
}

async fn post_status(url: Url) -> u16 {
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
async fn a_post_is_repeated_at_the_redirect_target() {
    for status in [301, 302, 307, 308] {
        let host = TestServer::responding(&[&redirect(status, "/next"), &ok("")]).await;
        assert_eq!(post_status(host.url()).await, 200);
        let last = &host.requests()[1];
        assert!(
            last.starts_with("POST /next ")
                && last.contains("secret")
                && last.ends_with("{\"output\":1}"),
            "{last}"
        );
    }
    let host = TestServer::responding(&[&redirect(303, "/taken"), &ok("")]).await;
    assert_eq!(post_status(host.url()).await, 200);
    assert!(host.requests()[1].starts_with("GET /taken "));
}

#[tokio::test]
async fn credentials_are_not_sent_to_another_server() {
    let other = TestServer::responding(&[&ok("")]).await;
    let host = TestServer::responding(&[&redirect(307, other.url().as_str())]).await;
    assert_eq!(post_status(host.url()).await, 200);
    assert!(!other.requests()[0].contains("secret"));
}

#[tokio::test]
async fn endless_redirects_are_not_followed() {
    let host = TestServer::responding(&[redirect(302, "/x").as_str(); 10]).await;
    assert_eq!(post_status(host.url()).await, 302);
    assert_eq!(host.requests().len(), 6);
}

#[tokio::test]
async fn webhooks_follow_no_redirect_and_read_no_body() {
    let other = TestServer::responding(&[&ok("")]).await;
    let host = TestServer::responding(&[&redirect(307, other.url().as_str())]).await;
    let client = Client::new(allowing("127.0.0.1"));
    assert_eq!(post(&client, &host.url()).await.unwrap().status, 307);
    assert!(other.requests().is_empty());
    let endless = TestServer::dripping(&ok(&"x".repeat(100_000)), Duration::from_millis(1)).await;
    assert!(post(&client, &endless.url()).await.unwrap().is_success());
}

#[tokio::test]
async fn retry_after_is_returned() {
    let host =
        TestServer::responding(&["HTTP/1.1 503 x\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"])
            .await;
    let response = post(&Client::new(allowing("127.0.0.1")), &host.url())
        .await
        .unwrap();
    assert_eq!(
        response,
        WebhookResponse {
            status: 503,
            retry_after: Some(Duration::from_secs(7))
        }
    );
}

#[tokio::test]
async fn downloads_are_bounded_in_size() {
    let announced = TestServer::responding(&[&ok("123456")]).await;
    let surprising =
        TestServer::responding(&["HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n123456"]).await;
    let client = Client::new(Config {
        max_file: 5,
        ..allowing("127.0.0.1")
    });
    for host in [announced, surprising] {
        let (result, path) = download(&client, &host.url()).await;
        assert!(
            matches!(result, Err(Error::TooLarge { limit: 5, .. })),
            "{result:?}"
        );
        std::fs::remove_file(path).ok();
    }
}

#[tokio::test]
async fn downloads_are_bounded_in_time() {
    let min_speed = MinSpeed {
        bytes: 1000,
        window: Duration::from_millis(50),
    };
    let ms = Duration::from_millis;
    let cases = [
        (
            "sent nothing",
            Config {
                download_stall_timeout: ms(50),
                ..allowing("127.0.0.1")
            },
            ms(60_000),
        ),
        (
            "too slowly",
            Config {
                download_min_speed: min_speed,
                ..allowing("127.0.0.1")
            },
            ms(10),
        ),
        (
            "took more than",
            Config {
                download_timeout: ms(50),
                ..allowing("127.0.0.1")
            },
            ms(10),
        ),
    ];
    for (word, config, pause) in cases {
        let host = TestServer::dripping(&ok(&"x".repeat(100_000)), pause).await;
        let (result, path) = download(&Client::new(config), &host.url()).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
        std::fs::remove_file(path).ok();
    }
}

#[tokio::test]
async fn an_upload_is_repeated_at_the_redirect_target() {
    let target = TestServer::responding(&["HTTP/1.1 201 x\r\ncontent-length: 0\r\n\r\n"]).await;
    let host = TestServer::responding(&[&redirect(
        307,
        &format!("{}?signature=secret", target.url()),
    )])
    .await;
    let mut file = tempfile();
    file.write_all(b"hello and more").unwrap();
    // Uploads go to a URL of the operator, which is not checked.
    let uploaded = Client::new(Config::default())
        .upload(&host.url(), HeaderMap::new(), &file, 5)
        .await
        .unwrap();
    assert_eq!(uploaded, target.url().as_str());
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
async fn errors_contain_no_credentials_and_no_paths() {
    let client = Client::new(allowing("127.0.0.1"));
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

//! Forwards requests of clients to another process of the same cluster. Bodies are streamed in both
//! directions, and the response may take as long as it takes.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::header::HeaderMap;
use reqwest::{Body, Method, redirect};
use url::Url;

use crate::error::host_of;
use crate::{Client, Config, Error, ServerTrust};

/// How long a connection may take: the processes of a cluster are close to each other.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Forwards requests.
#[derive(Debug)]
pub struct Forwarder {
    client: reqwest::Client,
}

/// A request to forward. Its headers must not contain those of the connection that it arrived on.
pub struct ForwardedRequest<S> {
    /// The method.
    pub method: Method,
    /// Where it goes.
    pub url: Url,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; absent if the request has none.
    pub body: Option<S>,
}

/// The response to a forwarded request.
#[derive(Debug)]
pub struct ForwardedResponse {
    url: Url,
    response: reqwest::Response,
}

impl Forwarder {
    /// A forwarder that accepts the certificates that the system trusts. Fails if no client can be created,
    /// for instance because there are no file descriptors left.
    pub fn new() -> Result<Self, reqwest::Error> {
        let builder = Client::new(Config::default()).basic();
        let client = ServerTrust::System
            .apply(builder)
            // The other process is in the same network.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .build()?;
        Ok(Self { client })
    }

    /// Sends a request and returns the head of its response. Dropping the future, or the body of the
    /// response, closes the connection.
    pub async fn send<S, E>(&self, request: ForwardedRequest<S>) -> Result<ForwardedResponse, Error>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + 'static,
    {
        let ForwardedRequest {
            method,
            url,
            headers,
            body,
        } = request;
        let mut sending = self.client.request(method, url.clone()).headers(headers);
        if let Some(body) = body {
            sending = sending.body(Body::wrap_stream(body));
        }
        match sending.send().await {
            Ok(response) => Ok(ForwardedResponse { url, response }),
            Err(error) => Err(Error::from_send(&url, error)),
        }
    }
}

impl ForwardedResponse {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The headers, with those of the connection.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The body, while it arrives.
    pub fn into_body(self) -> impl Stream<Item = Result<Bytes, Error>> + Send {
        let Self { url, response } = self;
        response.bytes_stream().map(move |part| {
            part.map_err(|error| Error::Incomplete {
                host: host_of(&url),
                source: error.without_url(),
            })
        })
    }
}

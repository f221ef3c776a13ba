//! Where the endpoints of a cluster are: here, or at another process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt;
use tidegate_net::Url;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::runpod::platform::route_of;

/// The endpoints of a cluster by name.
pub type EndpointPlaces = BTreeMap<String, EndpointPlace>;

/// The owners of all endpoints, as far as this process knows. Cloning gives another handle.
#[derive(Clone)]
pub struct EndpointDirectory {
    places: watch::Sender<Arc<EndpointPlaces>>,
    refresh: Arc<Notify>,
}

/// Where an endpoint is.
#[derive(Clone)]
pub enum EndpointPlace {
    /// This process owns it.
    Here(Arc<OwnedRoutes>),
    /// Another process owns it.
    There(RemoteOwner),
    /// It has no owner, or this process takes it over.
    Nowhere,
}

/// Another process that owns an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOwner {
    /// Where it is.
    pub url: Url,
    /// The number of its term.
    pub term: u64,
    /// When another process may take over, unless the owner renews its claim.
    pub expires_at: Instant,
}

impl Default for EndpointDirectory {
    fn default() -> Self {
        Self {
            places: watch::Sender::new(Arc::default()),
            refresh: Arc::default(),
        }
    }
}

impl EndpointDirectory {
    /// Replaces what is known.
    pub fn update(&self, places: EndpointPlaces) {
        self.places.send_replace(Arc::new(places));
    }

    /// Asks for an update: the owner of an endpoint does not answer.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Waits until an update is asked for.
    pub async fn refresh_requested(&self) {
        self.refresh.notified().await;
    }

    /// Where an endpoint is; `None` if there is no such endpoint.
    pub(super) fn place(&self, name: &str) -> Option<EndpointPlace> {
        self.places.borrow().get(name).cloned()
    }

    /// All endpoints.
    /// The names of all endpoints.
    pub fn names(&self) -> Vec<String> {
        self.all().keys().cloned().collect()
    }

    pub(super) fn all(&self) -> Arc<EndpointPlaces> {
        Arc::clone(&self.places.borrow())
    }

    /// Waits until an endpoint has an owner.
    pub(super) async fn until_owned(&self, name: &str) {
        let is_owned = |places: &Arc<EndpointPlaces>| {
            matches!(
                places.get(name),
                Some(EndpointPlace::Here(_) | EndpointPlace::There(_))
            )
        };
        // The sender lives as long as this directory.
        self.places.subscribe().wait_for(is_owned).await.ok();
    }

    /// Waits until an endpoint has another owner, or none.
    pub(super) async fn until_moved(&self, name: &str, owner: &RemoteOwner) {
        let has_moved = |places: &Arc<EndpointPlaces>| match places.get(name) {
            Some(EndpointPlace::There(current)) => {
                current.term != owner.term || current.expires_at <= Instant::now()
            }
            Some(EndpointPlace::Here(_) | EndpointPlace::Nowhere) | None => true,
        };
        // The sender lives as long as this directory.
        self.places.subscribe().wait_for(has_moved).await.ok();
    }
}

/// The routes of an endpoint that this process owns.
pub struct OwnedRoutes {
    routes: Router,
    /// Until when no other process can own the endpoint.
    valid_until: Mutex<Instant>,
    /// Cancelled when this process does not own it any more.
    over: CancellationToken,
}

impl OwnedRoutes {
    /// Serves `routes` until `over` is canceled, and while the claim is valid.
    pub fn new(routes: Router, valid_until: Instant, over: CancellationToken) -> Self {
        Self {
            routes,
            valid_until: Mutex::new(valid_until),
            over,
        }
    }

    /// Records that the claim was renewed.
    pub fn extend(&self, valid_until: Instant) {
        *self
            .valid_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = valid_until;
    }

    /// A process that was stopped for a while does not know yet what happened meanwhile.
    fn is_valid(&self) -> bool {
        let valid_until = *self
            .valid_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        !self.over.is_cancelled() && Instant::now() < valid_until
    }

    /// Serves a request; `None` if this process may not own the endpoint any more. An open request ends with
    /// the ownership.
    pub(super) async fn serve(&self, request: Request) -> Option<Response> {
        if !self.is_valid() {
            return None;
        }
        let is_openai = route_of(request.uri().path()) == Some("openai");
        let response = tokio::select! {
            biased;
            () = self.over.cancelled() => return None,
            Ok(response) = self.routes.clone().oneshot(request) => response,
        };
        // A job that was offered in the response is not delivered, and offered again.
        if !self.is_valid() {
            return None;
        }
        Some(if is_openai {
            self.end_with_ownership(response)
        } else {
            response
        })
    }

    /// Ends a body that is produced by a running job.
    fn end_with_ownership(&self, response: Response) -> Response {
        let over = self.over.clone().cancelled_owned();
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(over)))
    }
}

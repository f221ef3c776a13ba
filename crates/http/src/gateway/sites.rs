//! Routing between sites: which site serves a request, and what routers tell each other.
//!
//! The headers between routers count only together with the key of a site; otherwise they are removed. A
//! request that another router sent is served by the endpoints of this site; if they have no capacity and
//! the body is small, it goes on to a site that it has not visited.

use std::collections::VecDeque;
use std::time::Duration;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use tidegate_core::Account;
use tidegate_net::upstream::UpstreamRequestBody;
use tidegate_router::fleet::{
    BackendUrl, Discovery, Fleet, FleetModel, SITE_KEY_HEADER, SiteConfig, Strategy,
};
use tidegate_router::forward::{
    AttemptLog, ForwardFailure, ForwardRequest, Forwarded, PlannedCall, RepeatPolicy, RoutingError,
};
use tidegate_router::sites::{RequestOrigin, SiteQuery, SiteStep, site_order};
use tokio::time::Instant;

use super::GatewayState;
use super::error::GatewayError;
use super::inference::MODEL_HEADER;
use super::planner::RequestPlanner;
use super::reply::ErrorNumber;
use crate::access::TokenDigest;

/// The sites that a request has passed, separated by commas.
const PATH: HeaderName = HeaderName::from_static("x-tidegate-site-path");
/// The account of the client.
const ACCOUNT: HeaderName = HeaderName::from_static("x-tidegate-account");
/// The milliseconds that are left for the request.
const DEADLINE: HeaderName = HeaderName::from_static("x-tidegate-deadline-ms");
/// The site that must serve the request.
const FORCED_SITE: HeaderName = HeaderName::from_static("x-tidegate-site");
/// The number of requests that the sending router has in flight.
const INFLIGHT: HeaderName = HeaderName::from_static("cf-ai-requests-inflight");
/// The number of the error, between routers.
const CODE: HeaderName = HeaderName::from_static("x-tidegate-code");
/// The sites that the entry should try, from a site that has no capacity and does not forward the request.
pub(super) const SITES_TO_TRY: HeaderName = HeaderName::from_static("x-tidegate-sites");
/// The code of a model that a site does not know.
const UNKNOWN_MODEL: &str = "5007";
/// Bodies up to this size are forwarded by the site that has no capacity; larger ones are retried by the
/// entry.
const MAX_FORWARDED: usize = 256 * 1024;
/// The name of a site without a name, in the path of a request.
const UNNAMED: &str = "-";
/// The most sites that a request passes.
const MAX_HOPS: usize = 8;

/// What another router says about a request.
#[derive(Debug, Clone, Default)]
pub(super) struct SiteRequest {
    /// Whether the request comes from another router.
    pub(super) is_routed: bool,
    /// The sites that it has passed.
    pub(super) path: Vec<String>,
    /// The account of the client.
    pub(super) account: Option<Account>,
    forced_site: Option<String>,
    deadline_ms: Option<u64>,
}

impl SiteRequest {
    /// Reads the headers of another router. Without the key of a site they do not count.
    pub(super) fn of(fleet: &Fleet, headers: &HeaderMap) -> Result<Self, GatewayError> {
        let Some(key) = headers.get(SITE_KEY_HEADER) else {
            return Ok(Self::default());
        };
        // Digests are compared, so that the time says nothing about a key.
        let given = TokenDigest::of(key.as_bytes());
        let is_key = |site: &SiteConfig| {
            let known = site.key.as_ref();
            known.is_some_and(|key| TokenDigest::of(key.value.as_bytes()) == given)
        };
        if !fleet.sites.iter().any(is_key) {
            return Err(GatewayError::UnknownSiteKey);
        }
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let path: Vec<String> = text(PATH)
            .unwrap_or_default()
            .split(',')
            .map(|site| site.trim().to_owned())
            .filter(|site| !site.is_empty())
            .collect();
        if path.contains(&fleet.site) || path.len() >= MAX_HOPS {
            return Err(GatewayError::Loop(path.join(", ")));
        }
        Ok(Self {
            is_routed: true,
            path,
            account: text(ACCOUNT).and_then(|name| Account::parse(name).ok()),
            forced_site: text(FORCED_SITE).map(str::to_owned),
            deadline_ms: text(DEADLINE).and_then(|text| text.parse().ok()),
        })
    }

    /// The end of the request: the earlier one of the model's and the one of the entry.
    pub(super) fn deadline(&self, arrived: Instant, model: &FleetModel) -> Instant {
        let of_model = arrived + model.timeout.total;
        let left = self.deadline_ms.map(Duration::from_millis);
        left.map_or(of_model, |left| of_model.min(arrived + left))
    }
}

impl GatewayState {
    /// Forwards a request to the endpoints of this site and to other sites, in the order of the model.
    pub(super) async fn forward_by_site(
        &self,
        request: ForwardRequest,
        planner: &mut RequestPlanner,
        site: &SiteRequest,
    ) -> Result<Forwarded, Box<ForwardFailure>> {
        let table = self.registry.table();
        let fleet = table.fleet();
        if fleet.sites.is_empty() {
            return self.forwarder.forward(request, planner).await;
        }
        let query = SiteQuery {
            has_local: !request.group.is_empty(),
            origin: match site.is_routed {
                true => RequestOrigin::Router(&site.path),
                false => RequestOrigin::Client,
            },
            forced_site: site.forced_site.as_deref(),
            random: tidegate_core::random::bits() as u64,
        };
        let mut steps = VecDeque::from(site_order(fleet, &request.model, &query));
        let body_len = request.ask.body_bytes;
        let mut budget = SiteBudget::new(&request, site.is_routed, body_len);
        let mut last = None;
        while let Some(step) = steps.pop_front() {
            let result = match step {
                SiteStep::Local => self.forwarder.forward(request.clone(), planner).await,
                SiteStep::Remote(remote) => {
                    self.send_to_site(fleet, remote, &request, planner, site)
                        .await
                }
            };
            let outcome = SiteOutcome::of(&result);
            if let (SiteStep::Remote(remote), true) = (step, outcome != SiteOutcome::Answered) {
                self.telemetry.count_forward_failure(&remote.name);
            }
            if outcome == SiteOutcome::Answered {
                return result;
            }
            if !budget.allows(outcome, step) {
                return match site.is_routed {
                    true => name_sites_to_try(result, &steps),
                    false => for_client(result),
                };
            }
            prefer_named_sites(&mut steps, &result);
            last = Some(result);
        }
        match last {
            Some(result) => for_client(result),
            None => Err(no_site()),
        }
    }

    async fn send_to_site(
        &self,
        fleet: &Fleet,
        remote: &SiteConfig,
        request: &ForwardRequest,
        planner: &mut RequestPlanner,
        site: &SiteRequest,
    ) -> Result<Forwarded, Box<ForwardFailure>> {
        let Some(url) = self.router_of(remote) else {
            return Err(no_site());
        };
        let mut headers = planner.headers.clone();
        let path = site.path.iter().chain([&fleet.site]);
        // A site without a name counts too: the length of the path ends a loop.
        let named = path.map(|site| {
            if site.is_empty() {
                UNNAMED
            } else {
                site.as_str()
            }
        });
        let path: Vec<&str> = named.collect();
        let left = request.deadline.saturating_duration_since(Instant::now());
        let table = self.registry.table();
        let inflight: usize = table.groups().iter().map(|g| g.used_permits()).sum();
        let account = planner.account.to_string();
        let values = [
            (PATH, path.join(",")),
            (ACCOUNT, account),
            (MODEL_HEADER, planner.model.clone()),
            (DEADLINE, left.as_millis().to_string()),
            (INFLIGHT, (inflight + 1).to_string()),
        ];
        for (name, value) in values {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        let is_forced =
            site.forced_site.is_some() || request.model.routing.strategy == Strategy::ForcedSite;
        if is_forced && let Ok(name) = HeaderValue::from_str(&remote.name) {
            headers.insert(FORCED_SITE, name);
        }
        if let Some(key) = &remote.key
            && let Ok(mut value) = HeaderValue::from_str(&key.value)
        {
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(SITE_KEY_HEADER), value);
        }
        let call = PlannedCall {
            method: planner.method.clone(),
            target: planner.client_target.clone(),
            headers,
            body: match planner.method {
                Method::GET => UpstreamRequestBody::Empty,
                _ => planner.body.for_attempt(),
            },
            answer: None,
            upstream_id: None,
        };
        self.forwarder.send_to_router(&url, call, request).await
    }

    /// One of the routers of a site.
    fn router_of(&self, site: &SiteConfig) -> Option<BackendUrl> {
        let found = match &site.dns {
            Some(name) => self.control.addresses(&Discovery::Dns(name.clone())),
            None => Vec::new(),
        };
        let all: Vec<&BackendUrl> = site.urls.iter().chain(&found).collect();
        let random = tidegate_core::random::bits();
        let index = usize::try_from(random % all.len().max(1) as u128).unwrap_or_default();
        all.get(index).map(|url| (*url).clone())
    }
}

/// The result for the router that sent the request here: without capacity, with the sites that are left.
fn name_sites_to_try(
    result: Result<Forwarded, Box<ForwardFailure>>,
    left: &VecDeque<SiteStep<'_>>,
) -> Result<Forwarded, Box<ForwardFailure>> {
    let names = left.iter().filter_map(|step| match step {
        SiteStep::Local => None,
        SiteStep::Remote(site) => Some(site.name.clone()),
    });
    let sites: Vec<String> = names.collect();
    match result {
        Err(mut failure) if failure.error.is_capacity() && !sites.is_empty() => {
            failure.error = RoutingError::SitesToTry {
                sites,
                retry_after: failure.error.retry_after().unwrap_or_default(),
            };
            Err(failure)
        }
        result => result,
    }
}

/// The result for a client: it cannot try other sites.
fn for_client(
    result: Result<Forwarded, Box<ForwardFailure>>,
) -> Result<Forwarded, Box<ForwardFailure>> {
    match result {
        Ok(forwarded) if forwarded.head.headers.contains_key(SITES_TO_TRY) => {
            let seconds = forwarded.head.headers.get(RETRY_AFTER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
            Err(Box::new(ForwardFailure {
                error: RoutingError::Busy {
                    retry_after: Duration::from_secs(seconds.unwrap_or(1)),
                },
                log: forwarded.log,
            }))
        }
        result => result,
    }
}

/// Moves the sites that a full site has named to the front.
fn prefer_named_sites(
    steps: &mut VecDeque<SiteStep<'_>>,
    result: &Result<Forwarded, Box<ForwardFailure>>,
) {
    let Ok(forwarded) = result else {
        return;
    };
    let named = forwarded.head.headers.get(SITES_TO_TRY);
    let Some(named) = named.and_then(|value| value.to_str().ok()) else {
        return;
    };
    let rank = |step: &SiteStep<'_>| {
        let name = match step {
            SiteStep::Local => return usize::MAX,
            SiteStep::Remote(site) => &site.name,
        };
        let found = named.split(',').position(|site| site.trim() == name);
        found.unwrap_or(usize::MAX)
    };
    steps.make_contiguous().sort_by_key(rank);
}

/// Adds the number of an error, by which another router tells this one apart from a backend.
pub(super) fn tell_error_number(response: &mut Response) {
    if let Some(ErrorNumber(number)) = response.extensions().get().copied() {
        response.headers_mut().insert(CODE, number.into());
    }
}

/// No site can be asked: a forced one is unknown or was visited, or its routers have no address.
fn no_site() -> Box<ForwardFailure> {
    Box::new(ForwardFailure {
        error: RoutingError::NoSite,
        log: AttemptLog::default(),
    })
}

/// What the result of a site means for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SiteOutcome {
    /// The client gets it.
    Answered,
    /// The site has no capacity.
    NoCapacity,
    /// The site failed.
    Failed,
}

impl SiteOutcome {
    fn of(result: &Result<Forwarded, Box<ForwardFailure>>) -> Self {
        match result {
            Ok(forwarded) => match forwarded.head.headers.get(CODE) {
                // An answer of a backend.
                None => Self::Answered,
                Some(_) if forwarded.head.headers.contains_key(SITES_TO_TRY) => Self::NoCapacity,
                Some(code) => Self::of_router(forwarded.head.status, code),
            },
            Err(failure) if failure.error.is_capacity() => Self::NoCapacity,
            Err(failure) if failure.error.may_succeed_elsewhere() => Self::Failed,
            Err(_) => Self::Answered,
        }
    }

    /// What the error of another router means: a mistake of the client stays one everywhere.
    fn of_router(status: StatusCode, code: &HeaderValue) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Self::NoCapacity,
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT
            | StatusCode::LOOP_DETECTED => Self::Failed,
            _ if code == UNKNOWN_MODEL => Self::Failed,
            _ => Self::Answered,
        }
    }
}

/// How many other sites may be tried.
#[derive(Debug)]
struct SiteBudget {
    errors: u32,
    /// After the endpoints of this site had no capacity.
    capacity: u32,
    /// After another site had no capacity, which has asked further sites itself if the body is small.
    entry: u32,
}

impl SiteBudget {
    /// A site forwards small requests that it has no capacity for; the entry retries only large ones, and
    /// others if the model says so.
    fn new(request: &ForwardRequest, is_routed: bool, body_len: usize) -> Self {
        let retry = &request.model.retry;
        if request.repeat == RepeatPolicy::Never {
            return Self {
                errors: 0,
                capacity: 0,
                entry: 0,
            };
        }
        let is_small = body_len <= MAX_FORWARDED;
        let (capacity, entry) = match (is_routed, is_small) {
            (true, true) => (retry.capacity.small, retry.capacity.small),
            (true, false) => (0, 0),
            (false, true) => (retry.capacity.small, retry.entry),
            (false, false) => (retry.capacity.large, retry.capacity.large),
        };
        Self {
            errors: retry.errors,
            capacity,
            entry,
        }
    }

    fn allows(&mut self, outcome: SiteOutcome, of: SiteStep<'_>) -> bool {
        let left = match (outcome, of) {
            (SiteOutcome::Answered, _) => return false,
            (SiteOutcome::NoCapacity, SiteStep::Local) => &mut self.capacity,
            (SiteOutcome::NoCapacity, SiteStep::Remote(_)) => &mut self.entry,
            (SiteOutcome::Failed, _) => &mut self.errors,
        };
        let allowed = *left > 0;
        *left = left.saturating_sub(1);
        allowed
    }
}

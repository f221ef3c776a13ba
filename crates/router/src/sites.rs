//! Chooses the sites of a request: where it goes first, and where it goes if that site has no capacity or
//! does not answer. Pure functions; the gateway sends the requests.

use crate::fleet::{Fleet, FleetModel, SiteConfig, Strategy};

/// What the choice of sites depends on besides the configuration.
#[derive(Debug, Clone, Copy)]
pub struct SiteQuery<'a> {
    /// Whether this router has endpoints of the model.
    pub has_local: bool,
    /// Where the request comes from.
    pub origin: RequestOrigin<'a>,
    /// The site that the request must go to, if it says so.
    pub forced_site: Option<&'a str>,
    /// A random number: equal sites share the traffic.
    pub random: u64,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOrigin<'a> {
    /// A client: this router is its entry.
    Client,
    /// The router of another site, with the sites that the request has passed.
    Router(&'a [String]),
}

/// One site to try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SiteStep<'a> {
    /// The endpoints of this router.
    Local,
    /// The routers of another site.
    Remote(&'a SiteConfig),
}

/// The sites of a request in the order in which they are tried. A request visits no site twice.
pub fn site_order<'a>(
    fleet: &'a Fleet,
    model: &FleetModel,
    query: &SiteQuery<'_>,
) -> Vec<SiteStep<'a>> {
    let is_deployed =
        |site: &&SiteConfig| model.sites.is_empty() || model.sites.contains(&site.name);
    let visited = match query.origin {
        RequestOrigin::Client => &[],
        RequestOrigin::Router(path) => path,
    };
    let remote: Vec<&SiteConfig> = fleet
        .sites
        .iter()
        .filter(is_deployed)
        .filter(|site| !visited.contains(&site.name))
        .collect();
    let forced = query.forced_site.or_else(|| forced_by(model, "site"));
    if let Some(forced) = forced {
        return forced_order(fleet, &remote, forced);
    }
    // A request of another router has been sent here for the endpoints of this site.
    if let RequestOrigin::Router(_) = query.origin {
        return local_first(query, remote);
    }
    match model.routing.strategy {
        Strategy::Random => random_order(query, remote),
        Strategy::Latency | Strategy::ForcedSite => local_first(query, remote),
        Strategy::ForcedFlow => {
            let flow = model.routing.params.get("flow");
            let in_flow = |site: &&SiteConfig| site.flow.as_ref() == flow;
            random_remotes(query, remote.into_iter().filter(in_flow).collect())
        }
    }
}

fn forced_by<'a>(model: &'a FleetModel, param: &str) -> Option<&'a str> {
    let is_forced = model.routing.strategy == Strategy::ForcedSite;
    let site = model.routing.params.get(param).filter(|_| is_forced)?;
    Some(site)
}

/// Only this site.
fn forced_order<'a>(fleet: &Fleet, remote: &[&'a SiteConfig], forced: &str) -> Vec<SiteStep<'a>> {
    if forced == fleet.site {
        return vec![SiteStep::Local];
    }
    let site = remote.iter().find(|site| site.name == forced);
    site.map(|site| SiteStep::Remote(site))
        .into_iter()
        .collect()
}

/// This site, then the others by their distance, those of one step in random order.
fn local_first<'a>(query: &SiteQuery<'_>, remote: Vec<&'a SiteConfig>) -> Vec<SiteStep<'a>> {
    let mut steps = random_remotes(query, remote);
    steps.sort_by_key(|step| match step {
        SiteStep::Local => 0,
        SiteStep::Remote(site) => site.step,
    });
    if query.has_local {
        steps.insert(0, SiteStep::Local);
    }
    steps
}

/// All sites in random order.
fn random_order<'a>(query: &SiteQuery<'_>, remote: Vec<&'a SiteConfig>) -> Vec<SiteStep<'a>> {
    let mut steps: Vec<SiteStep<'a>> = remote.into_iter().map(SiteStep::Remote).collect();
    if query.has_local {
        steps.push(SiteStep::Local);
    }
    shuffle(&mut steps, query.random);
    steps
}

fn random_remotes<'a>(query: &SiteQuery<'_>, remote: Vec<&'a SiteConfig>) -> Vec<SiteStep<'a>> {
    let mut steps: Vec<SiteStep<'a>> = remote.into_iter().map(SiteStep::Remote).collect();
    shuffle(&mut steps, query.random);
    steps
}

/// Fisher–Yates with the bits of a linear congruential generator.
fn shuffle<T>(items: &mut [T], mut random: u64) {
    for index in (1..items.len()).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let other = (random >> 33) % (index as u64 + 1);
        items.swap(index, usize::try_from(other).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn site(name: &str, step: u32, flow: Option<&str>) -> SiteConfig {
        SiteConfig {
            name: name.to_owned(),
            urls: Vec::new(),
            dns: None,
            step,
            flow: flow.map(str::to_owned),
            key: None,
        }
    }

    fn fleet() -> Fleet {
        let mut fleet = Fleet::default();
        fleet.site = "ams".to_owned();
        fleet.sites = vec![
            site("far", 3, None),
            site("near", 1, Some("eu")),
            site("near2", 1, None),
        ];
        fleet
    }

    fn query(random: u64) -> SiteQuery<'static> {
        SiteQuery {
            has_local: true,
            origin: RequestOrigin::Client,
            forced_site: None,
            random,
        }
    }

    fn model(strategy: Strategy, param: Option<(&str, &str)>) -> FleetModel {
        let mut model = FleetModel::new("m");
        model.routing.strategy = strategy;
        let params = param.map(|(name, value)| (name.to_owned(), value.to_owned()));
        model.routing.params.extend(params);
        model
    }

    fn names(steps: &[SiteStep<'_>]) -> Vec<String> {
        let name = |step: &SiteStep<'_>| match step {
            SiteStep::Local => "ams".to_owned(),
            SiteStep::Remote(site) => site.name.clone(),
        };
        steps.iter().map(name).collect()
    }

    #[test]
    fn random_routing_spreads_requests_over_all_sites() {
        let (fleet, model) = (fleet(), model(Strategy::Random, None));
        let mut first = HashMap::<String, u32>::new();
        for random in 0..4000_u64 {
            let random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let order = names(&site_order(&fleet, &model, &query(random)));
            assert_eq!(order.len(), 4);
            *first.entry(order[0].clone()).or_default() += 1;
        }
        assert_eq!(first.len(), 4);
        assert!(first.values().all(|n| (800..1200).contains(n)), "{first:?}");
    }

    #[test]
    fn latency_routing_tries_near_sites_first() {
        let (fleet, model) = (fleet(), model(Strategy::Latency, None));
        for random in 0..50 {
            let order = names(&site_order(&fleet, &model, &query(random)));
            assert_eq!((order[0].as_str(), order[3].as_str()), ("ams", "far"));
        }
    }

    #[test]
    fn a_forced_site_is_the_only_one() {
        let fleet = fleet();
        let forced = model(Strategy::ForcedSite, Some(("site", "far")));
        assert_eq!(names(&site_order(&fleet, &forced, &query(1))), ["far"]);
        let by_request = SiteQuery {
            forced_site: Some("near"),
            ..query(1)
        };
        let random = model(Strategy::Random, None);
        assert_eq!(names(&site_order(&fleet, &random, &by_request)), ["near"]);
        let own = SiteQuery {
            forced_site: Some("ams"),
            ..query(1)
        };
        assert_eq!(names(&site_order(&fleet, &random, &own)), ["ams"]);
    }

    #[test]
    fn a_flow_has_its_own_sites() {
        let flow = model(Strategy::ForcedFlow, Some(("flow", "eu")));
        assert_eq!(names(&site_order(&fleet(), &flow, &query(5))), ["near"]);
    }

    #[test]
    fn a_request_of_a_router_is_local_first_and_visits_no_site_twice() {
        let path = ["far".to_owned(), "near".to_owned()];
        let query = SiteQuery {
            origin: RequestOrigin::Router(&path),
            ..query(9)
        };
        let model = model(Strategy::Random, None);
        let order = names(&site_order(&fleet(), &model, &query));
        assert_eq!(order, ["ams", "near2"]);
    }

    #[test]
    fn a_model_may_be_deployed_at_some_sites_only() {
        let deployed = FleetModel {
            sites: vec!["far".to_owned()],
            ..model(Strategy::Latency, None)
        };
        let order = names(&site_order(&fleet(), &deployed, &query(1)));
        assert_eq!(order, ["ams", "far"]);
    }
}

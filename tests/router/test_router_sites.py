"""Routing between sites: which site serves a request, and what happens when one is full or gone."""

from __future__ import annotations

import socket

import pytest
from environment import free_port
from fleet_file import endpoint, model
from router_process import Router
from stub_upstream import Exchange, StubUpstream, answer_chat
from waiting import wait_until

KEY = "key-of-the-fleet"
NAMES = ("ams", "fra", "lhr")


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


class Sites:
    """Three sites with a router and a backend each."""

    def __init__(self, router, upstreams, *, entry=None, backends=NAMES, **settings) -> None:
        self.ports = {name: free_port() for name in NAMES}
        self.backends: dict[str, StubUpstream] = {name: upstreams() for name in NAMES}
        self.routers: dict[str, Router] = {}
        for name in NAMES:
            options = {"queue": {"capacity": 0}, **settings, **((entry or {}) if name == "ams" else {})}
            endpoints = [endpoint(self.backends[name].url, permits=1)] if name in backends else []
            remote = [self._remote(other) for other in NAMES if other != name]
            self.routers[name] = router(
                model("m", *endpoints, **options),
                site=name,
                remote_site=remote,
                port=self.ports[name],
            )

    def _remote(self, name: str) -> dict:
        step = {"ams": 2, "fra": 1, "lhr": 2}[name]
        url = f"http://127.0.0.1:{self.ports[name]}"
        return {"name": name, "urls": [url], "step": step, "flow": f"{name}-flow", "key": KEY}

    @property
    def entry(self) -> Router:
        return self.routers["ams"]

    def counts(self) -> dict[str, int]:
        return {name: backend.n_requests for name, backend in self.backends.items()}

    def fill(self, *names: str) -> None:
        """Occupy the only permit of sites."""
        for name in names:
            self.backends[name].answer = hold
            headers = {"x-tidegate-site-key": KEY, "x-tidegate-site": name}
            self.routers[name].chat_in_background("occupies", headers=headers)
            self.backends[name].wait_for_requests(1)


LATENCY = {"routing": {"strategy": "latency"}}


def test_random_routing_spreads_requests_over_sites(router, upstreams):
    sites = Sites(router, upstreams)
    assert [sites.entry.chat().status for _ in range(60)] == [200] * 60
    assert all(count >= 5 for count in sites.counts().values()), sites.counts()


def test_latency_routing_prefers_the_own_site_and_then_the_nearest(router, upstreams):
    sites = Sites(router, upstreams, **LATENCY)
    assert [sites.entry.chat().status for _ in range(10)] == [200] * 10
    assert sites.counts() == {"ams": 10, "fra": 0, "lhr": 0}


def test_a_site_without_endpoints_of_its_own_uses_the_nearest(router, upstreams):
    sites = Sites(router, upstreams, backends=("fra", "lhr"), **LATENCY)
    assert [sites.entry.chat().status for _ in range(6)] == [200] * 6
    assert sites.counts() == {"ams": 0, "fra": 6, "lhr": 0}


def test_a_full_site_sends_requests_to_the_next(router, upstreams):
    sites = Sites(router, upstreams, **LATENCY)
    sites.fill("ams")
    assert [sites.entry.chat(str(number)).status for number in range(4)] == [200] * 4
    assert sites.counts() == {"ams": 1, "fra": 4, "lhr": 0}


def test_full_sites_are_told_as_one_429(router, upstreams):
    sites = Sites(router, upstreams, **LATENCY)
    sites.fill(*NAMES)
    reply = sites.entry.chat()
    assert (reply.status, reply.json["error"]["code"]) == (429, "capacity_exceeded"), str(reply)
    assert sites.counts() == {"ams": 1, "fra": 1, "lhr": 1}
    run = sites.entry.request("POST", "/client/v4/accounts/a/ai/run/m", json={"prompt": "x"})
    assert (run.status, run.json["errors"][0]["code"]) == (429, 3040)
    assert run.json["errors"][0]["message"] == "Capacity temporarily exceeded, please try again."


def test_a_site_that_is_gone_costs_no_request(router, upstreams):
    sites = Sites(router, upstreams, backends=("fra", "lhr"), **LATENCY)
    sites.routers["fra"].server.process.kill()
    sites.routers["fra"].server.process.wait(5)
    assert [sites.entry.chat().status for _ in range(6)] == [200] * 6
    assert sites.counts()["lhr"] == 6
    assert sites.entry.metric("tidegate_router_forward_failures_total", site="fra") >= 1


def test_a_backend_that_is_gone_is_replaced_by_another_site(router, upstreams):
    sites = Sites(router, upstreams, **LATENCY)
    sites.backends["ams"].stop()
    assert [sites.entry.chat().status for _ in range(6)] == [200] * 6
    assert sites.counts()["fra"] == 6


def test_a_model_may_be_forced_to_a_site(router, upstreams):
    forced = {"routing": {"strategy": "forced-site", "params": {"site": "lhr"}}}
    sites = Sites(router, upstreams, entry=forced)
    assert [sites.entry.chat().status for _ in range(6)] == [200] * 6
    assert sites.counts() == {"ams": 0, "fra": 0, "lhr": 6}


def test_a_forced_site_is_the_only_one_that_is_asked(router, upstreams):
    forced = {"routing": {"strategy": "forced-site", "params": {"site": "lhr"}}}
    sites = Sites(router, upstreams, entry=forced, **LATENCY)
    sites.fill("lhr")
    assert sites.entry.chat().status == 429
    assert sites.counts() == {"ams": 0, "fra": 0, "lhr": 1}


def test_a_model_may_be_forced_to_a_resource_flow(router, upstreams):
    forced = {"routing": {"strategy": "forced-flow", "params": {"flow": "fra-flow"}}}
    sites = Sites(router, upstreams, entry=forced)
    assert [sites.entry.chat().status for _ in range(6)] == [200] * 6
    assert sites.counts() == {"ams": 0, "fra": 6, "lhr": 0}


def test_a_request_may_name_its_site_only_with_the_key(router, upstreams):
    sites = Sites(router, upstreams, **LATENCY)
    header = {"x-tidegate-site": "lhr"}
    assert sites.entry.chat(headers=header).status == 200
    assert sites.counts() == {"ams": 1, "fra": 0, "lhr": 0}
    assert sites.entry.chat(headers={**header, "x-tidegate-site-key": KEY}).status == 200
    assert sites.counts() == {"ams": 1, "fra": 0, "lhr": 1}
    wrong = sites.entry.chat(headers={**header, "x-tidegate-site-key": "wrong"})
    assert wrong.status in (401, 403), str(wrong)


def test_a_model_is_deployed_at_some_sites_only(router, upstreams):
    sites = Sites(router, upstreams, entry={"sites": ["lhr"]}, backends=("fra", "lhr"))
    assert [sites.entry.chat().status for _ in range(6)] == [200] * 6
    assert sites.counts() == {"ams": 0, "fra": 0, "lhr": 6}


def test_a_request_that_comes_back_is_a_loop(router, upstreams):
    sites = Sites(router, upstreams, **LATENCY)
    headers = {"x-tidegate-site-key": KEY, "x-tidegate-site-path": "fra,ams"}
    reply = sites.entry.chat(headers=headers)
    assert reply.status == 508, str(reply)
    assert sum(sites.counts().values()) == 0


def test_routers_tell_each_other_how_many_requests_they_have(router, upstreams):
    """The peer is a stub here, so that the headers are seen."""
    peer = upstreams()
    remote = {"name": "fra", "urls": [peer.url], "step": 1, "key": KEY}
    running = router(model("m", **LATENCY), site="ams", remote_site=[remote])
    assert running.chat(headers={"x-tidegate-account": "forged"}).status == 200
    headers = peer.requests[0].headers
    assert headers["x-tidegate-site-path"] == "ams"
    assert headers["x-tidegate-site-key"] == KEY
    assert int(headers["cf-ai-requests-inflight"]) >= 1
    assert int(headers["x-tidegate-deadline-ms"]) > 0
    assert headers["x-tidegate-account"] != "forged"


def test_headers_between_routers_do_not_reach_backends(router, upstreams):
    sites = Sites(router, upstreams, backends=("fra",), **LATENCY)
    assert sites.entry.chat().status == 200
    headers = sites.backends["fra"].requests[0].headers
    assert not [name for name in headers if name.startswith(("x-tidegate-", "cf-ai-"))], headers
    assert KEY not in str(headers)


def test_streams_pass_between_sites_and_clients_that_leave_are_noticed(router, upstreams):
    async def stream(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"data: first\n\n")
        await exchange.hold()
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    sites = Sites(router, upstreams, backends=("fra",), **LATENCY)
    backend = sites.backends["fra"]
    backend.answer = stream
    running = sites.entry.chat_in_background(body={"stream": True})
    backend.wait_for_requests(1)
    backend.release()
    assert running.reply().body == b"data: first\n\ndata: [DONE]\n\n"
    connection = sites.entry.open_chat(stream=True)
    backend.wait_for_requests(2)
    connection.close()
    wait_until(lambda: backend.n_aborted == 1, "the abort at the backend")
    sites.routers["fra"].wait_used_permits(0)


@pytest.mark.parametrize(("n_bytes", "is_forwarded"), [(200_000, True), (300_000, False)])
def test_large_bodies_are_retried_by_the_entry_only(router, upstreams, n_bytes, is_forwarded):
    """The entry has no endpoints. A full site forwards a small body itself; a large one it refuses."""
    retry = {"retry": {"errors": 0, "capacity": {"small": 2, "large": 0}, "entry": 0}}
    sites = Sites(router, upstreams, entry=retry, backends=("fra", "lhr"), **LATENCY)
    sites.fill("fra")
    reply = sites.entry.chat("x" * n_bytes)
    assert reply.status == (200 if is_forwarded else 429), str(reply)[:300]
    assert sites.counts()["lhr"] == (1 if is_forwarded else 0)


def test_a_full_site_names_the_sites_to_try(router, upstreams):
    """A site without capacity does not forward a large body: it tells the router that sent it where to go."""
    sites = Sites(router, upstreams, **LATENCY)
    sites.fill("fra")
    headers = {"x-tidegate-site-key": KEY, "x-tidegate-site-path": "ams"}
    reply = sites.routers["fra"].chat("x" * 300_000, headers=headers)
    assert (reply.status, reply.headers["x-tidegate-sites"]) == (500, "lhr"), str(reply)[:300]
    assert reply.headers["x-tidegate-code"] == "3040"
    small = sites.routers["fra"].chat("x", headers=headers)
    assert small.status == 200, "small bodies are forwarded"


def test_the_entry_tries_the_sites_that_a_full_site_names(router, upstreams):
    async def full(exchange: Exchange) -> None:
        headers = {"x_tidegate_code": "3040", "x_tidegate_sites": "sin,lhr", "retry_after": "7"}
        await exchange.respond(500, {"error": {"message": "full"}}, **headers)

    for large, counts, status in ((1, [1, 0, 1], 200), (0, [1, 0, 0], 429)):
        peers = [upstreams(full), upstreams(), upstreams()]
        remotes = [
            {"name": name, "urls": [peer.url], "step": step, "key": KEY}
            for step, (name, peer) in enumerate(zip(("fra", "lhr", "sin"), peers, strict=True), start=1)
        ]
        retry = {"capacity": {"small": 0, "large": large}}
        running = router(model("m", **LATENCY, retry=retry), site="ams", remote_site=remotes)
        reply = running.chat("x" * 300_000)
        assert reply.status == status, str(reply)[:300]
        assert [peer.n_requests for peer in peers] == counts
        if status == 429:
            assert (reply.headers["retry-after"], "x-tidegate-sites" in reply.headers) == ("7", False)


def test_the_entry_does_not_retry_unless_the_model_says_so(router, upstreams):
    """The nearest site is a stub that has no capacity, so that only the entry could try the next one."""

    async def full(exchange: Exchange) -> None:
        await exchange.respond(429, {"error": {"message": "full"}}, x_tidegate_code="3040")

    for entry, expected in ((0, [1, 0]), (1, [1, 1])):
        near, far = upstreams(full), upstreams()
        remotes = [
            {"name": name, "urls": [peer.url], "step": step, "key": KEY}
            for step, (name, peer) in enumerate((("fra", near), ("lhr", far)), start=1)
        ]
        running = router(model("m", **LATENCY, retry={"entry": entry}), site="ams", remote_site=remotes)
        assert running.chat().status == (200 if entry else 429)
        assert [near.n_requests, far.n_requests] == expected


def test_the_event_of_a_request_has_its_sites(router, upstreams, tmp_path):
    path = tmp_path / "e.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(15)
        backend = upstreams()
        running = router(
            model("m", endpoint(backend.url)),
            site="fra",
            remote_site=[{"name": "ams", "urls": ["http://127.0.0.1:9"], "step": 1, "key": KEY}],
            events={"socket": str(path)},
        )
        headers = {"x-tidegate-site-key": KEY, "x-tidegate-site-path": "ams"}
        assert running.chat(headers=headers).status == 200
        event = receiver.recv(65536).decode()
    for field in ('"colo_id":"fra"', '"source_colo_id":"ams"', '"colo_path":"ams,fra"'):
        assert field in event.replace(": ", ":"), event


def test_requests_visit_no_site_twice(router, upstreams):
    sites = Sites(router, upstreams)
    sites.fill(*NAMES)
    for _ in range(10):
        assert sites.entry.chat().status == 429
    assert sites.counts() == {"ams": 1, "fra": 1, "lhr": 1}

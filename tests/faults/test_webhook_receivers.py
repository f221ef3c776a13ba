"""Rows C1 to C9 of docs/reliability.md: receivers that are down, slow, hostile or private."""

import itertools
import threading
import time

import hostile_servers
import pytest
from baseline import MIB, Baseline, assert_refused
from environment import free_port
from http_client import wait_for_end
from namespaces import run_in_namespaces
from private_addresses import PRIVATE_HOSTS, name_of_this_machine
from processes import peak_memory, resident_memory
from raw_http import exchange, json_request
from receiver import Receiver
from waiting import wait_until

TERMINAL = ("succeeded", "failed", "canceled")


def predict_with_webhook(server, url, nonce="told", events=("completed",), **input):
    """An accepted prediction that tells `url`; returns its id when it is over."""
    id = server.start({"nonce": nonce, **input}, webhook=url, webhook_events_filter=list(events)).json["id"]
    assert wait_for_end(server, id)["status"] == "succeeded"
    return id


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_webhook_is_retried_until_a_failing_receiver_recovers(shared_server, receiver, status):
    path = receiver.path()
    predict_with_webhook(shared_server("journal"), receiver.plan(path, status, status, status, 200))
    received = receiver.wait(path, 4)
    assert [one.json["status"] for one in received] == ["succeeded"] * 4


def test_a_webhook_is_retried_until_the_receiver_is_up(shared_server):
    port = free_port()
    id = predict_with_webhook(shared_server("journal"), f"http://127.0.0.1:{port}/hook", "down")
    late = Receiver(port=port)
    try:
        assert late.wait_terminal("/hook")["id"] == id
    finally:
        late.close()


@pytest.mark.parametrize(
    "behaviour", [hostile_servers.hangs_up, hostile_servers.sends_garbage], ids=lambda b: b.__name__
)
def test_a_webhook_is_retried_after_a_broken_connection(shared_server, behaviour):
    with hostile_servers.hostile_server(behaviour) as hostile:
        predict_with_webhook(shared_server("journal"), hostile.url + "/hook")
        wait_until(lambda: hostile.requests >= 3, "two more attempts")


def test_retry_after_is_honoured(shared_server, receiver):
    path = receiver.path()
    predict_with_webhook(
        shared_server("journal"), receiver.plan(path, 429, 200, headers={"Retry-After": "2"})
    )
    first, second = receiver.wait(path, 2)
    assert second.at - first.at >= 1.9  # the pause without it is a fraction of a second


@pytest.mark.parametrize(
    "value", ["soon", "-1", "1e400", "", "99999999999999999999999", "Thu, 01 Jan 1970 00:00:00 GMT"]
)
def test_an_invalid_retry_after_is_ignored(shared_server, receiver, value):
    server, path, other = shared_server("journal"), receiver.path(), receiver.path()
    predict_with_webhook(server, receiver.plan(path, 503, 200, headers={"Retry-After": value}))
    receiver.wait(path, 1)
    if not value.startswith("9"):
        receiver.wait(path, 2)
    predict_with_webhook(server, receiver.url + other)
    receiver.wait_terminal(other)


def test_webhooks_over_plain_http_work_without_root_certificates(start_server, receiver):
    """A small container image has no certificates; http needs none."""
    nowhere = {"SSL_CERT_FILE": "/nonexistent", "SSL_CERT_DIR": "/nonexistent"}
    server, path = start_server("journal", env=nowhere), receiver.path()
    predict_with_webhook(server, receiver.url + path)
    assert receiver.wait_terminal(path)["output"] == "told"
    file = receiver.file("x.txt", b"hello")
    assert server.predict({"nonce": "fetched", "path": file}).json.get("output") == "fetched"


def test_retry_delays_grow_and_have_jitter(shared_server, receiver):
    """Ten jobs that fail together must not come back together."""
    server, paths = shared_server("journal"), [receiver.path() for _ in range(10)]
    for path in paths:
        predict_with_webhook(server, receiver.plan(path, 503, 503, 503, 200))
    pauses = []
    for path in paths:
        times = [one.at for one in receiver.wait(path, 4)]
        pauses.append([later - earlier for earlier, later in itertools.pairwise(times)])
    firsts = [pause[0] for pause in pauses]
    assert max(firsts) - min(firsts) > 0.02, firsts
    assert sum(pause[2] for pause in pauses) > sum(firsts)


def test_a_hanging_receiver_does_not_delay_others(start_server, receiver, tmp_path):
    server = start_server("journal")
    with hostile_servers.hostile_server(hostile_servers.hangs) as hostile:
        for _ in range(20):
            predict_with_webhook(
                server, hostile.url + "/hook", events=("start", "output", "logs", "completed")
            )
        path = receiver.path()
        predict_with_webhook(server, receiver.url + path, "prompt")
        assert receiver.wait_terminal(path, timeout=5)["output"] == "prompt"
        Baseline(server, receiver, tmp_path).assert_slots()


def test_redirects_are_not_followed(shared_server, receiver):
    server, target, path = shared_server("journal"), receiver.path(), receiver.path()
    predict_with_webhook(
        server, receiver.plan(path, 302, 307, 308, 301, 200, headers={"Location": receiver.url + target})
    )
    receiver.wait(path, 5)
    assert receiver.received(target) == []


def test_a_redirect_loop_is_retried_like_other_failures(shared_server, receiver):
    """Cog made 44 requests in 3 s."""
    path = receiver.path()
    predict_with_webhook(
        shared_server("journal"), receiver.plan(path, 302, headers={"Location": receiver.url + path})
    )
    first, *_ = receiver.wait(path, 3)
    third = receiver.received(path)[2]
    assert third.at - first.at > 0.2
    receiver.plan(path, 200)


def test_a_redirect_to_a_private_address_is_not_followed(shared_server):
    with hostile_servers.hostile_server(hostile_servers.hangs) as private:
        port = private.url.rpartition(":")[2]
        with hostile_servers.hostile_server(
            hostile_servers.redirects_to(f"http://127.0.0.1:{port}/secret")
        ) as hostile:
            predict_with_webhook(shared_server("journal"), hostile.url + "/hook")
            wait_until(lambda: hostile.requests >= 2, "a retry")
        assert private.requests == 0


HOSTILE = [
    hostile_servers.huge_body,
    hostile_servers.endless_body,
    hostile_servers.slow_body,
    hostile_servers.endless_headers,
    hostile_servers.slow_headers,
    hostile_servers.short_body,
]


@pytest.mark.parametrize("behaviour", HOSTILE, ids=lambda b: b.__name__)
def test_a_hostile_response_uses_bounded_memory(start_server, receiver, tmp_path, behaviour):
    server = start_server("journal")
    proof, before = Baseline(server, receiver, tmp_path), resident_memory(server.process.pid)
    with hostile_servers.hostile_server(behaviour) as hostile:
        for _ in range(5):
            predict_with_webhook(server, hostile.url + "/hook", events=("start", "output", "completed"))
        wait_until(lambda: hostile.requests >= 5, "the receiver to be called")
        path = receiver.path()
        predict_with_webhook(server, receiver.url + path, "prompt")
        assert receiver.wait_terminal(path, timeout=5)["output"] == "prompt"
        proof.assert_slots()
        assert peak_memory(server.process.pid) - before < 128 * MIB
    proof.assert_not_grown(64 * MIB)


@pytest.mark.parametrize(
    "behaviour",
    [hostile_servers.huge_body, hostile_servers.endless_body, hostile_servers.slow_body],
    ids=lambda b: b.__name__,
)
def test_the_body_of_a_receivers_response_is_ignored(shared_server, receiver, behaviour):
    """A 2xx is a delivery, whatever comes after it: nothing is sent twice."""
    server = shared_server("journal")
    with hostile_servers.hostile_server(behaviour) as hostile:
        predict_with_webhook(server, hostile.url + "/hook")
        # By the time of a third attempt elsewhere, a second one would have been made here.
        path = receiver.path()
        predict_with_webhook(server, receiver.plan(path, 500, 500, 200))
        receiver.wait(path, 3)
        assert hostile.requests == 1


def test_no_webhook_follows_the_terminal_one_under_load(start_server, receiver):
    server, count = start_server("many", "--workers", "2", "--queue", "100"), 60
    paths = [receiver.path() for _ in range(count)]
    slow = threading.Event()
    for number, path in enumerate(paths):
        if number % 10 == 0:
            receiver.plan(path, hold=slow)
        server.start({"count": 5}, webhook=receiver.url + path)
    for number, path in enumerate(paths):
        if number % 10:
            receiver.wait_terminal(path, timeout=30)
    slow.set()
    for path in paths:
        receiver.wait_terminal(path)
    server.stop()  # after the drain nothing is on its way any more
    for path in paths:
        bodies = [one.json for one in receiver.received(path)]
        assert [body["status"] in TERMINAL for body in bodies] == [False] * (len(bodies) - 1) + [True]
        sizes = [len(body.get("output") or []) for body in bodies]
        assert sizes == sorted(sizes)


def test_a_retried_message_has_the_same_id(shared_server, receiver):
    path = receiver.path()
    server = shared_server("journal")
    predict_with_webhook(server, receiver.plan(path, 500, 500, 200))
    attempts = receiver.wait(path, 3)
    assert len({one.headers["webhook-id"] for one in attempts}) == 1
    assert attempts[0].headers["webhook-id"].startswith("msg_")
    assert len({one.body for one in attempts}) == 1


def test_different_messages_have_different_ids(shared_server, receiver):
    server, path = shared_server("journal"), receiver.path()
    for _ in range(5):
        predict_with_webhook(server, receiver.url + path, events=("start", "output", "completed"))
    received = receiver.wait(path, 15)
    assert len({one.headers["webhook-id"] for one in received}) == 15
    assert all(abs(int(one.headers["webhook-timestamp"]) - time.time()) < 120 for one in received)


BAD_URLS = {
    "no URL": "not a url",
    "a path": "/hook",
    "no scheme": "//example.com/hook",
    "file": "file:///etc/passwd",
    "file with a host": "file://example.com/x",
    "ftp": "ftp://example.com/hook",
    "data": "data:text/plain,x",
    "javascript": "javascript:alert(1)",
    "gopher": "gopher://example.com/_x",
    "unix socket": "unix:///var/run/docker.sock",
    "ws": "ws://example.com/",
    "no host": "http://",
    "only a port": "http://:80/",
    "only userinfo": "http://a:b@/",
    "a space in the host": "http://exa mple.com/",
    "an open bracket": "http://[::1/",
    "a port that is none": "http://example.com:99999/",
    "a port of letters": "http://example.com:http/",
    "NUL in the host": "http://exam\0ple.com/",
    "markup in the host": "http://<script>/",
    "percent in the host": "http://exa%mple.com/",
}


@pytest.mark.parametrize("name", BAD_URLS)
def test_an_unusable_webhook_url_is_refused(baseline, name):
    for prefer in ("", "respond-async"):
        body = {"input": {"nonce": "never"}, "webhook": BAD_URLS[name]}
        reply = exchange(baseline.server, json_request(body, prefer=prefer))
        assert_refused(reply, 422)
        assert reply.detail[0]["loc"] == ["body", "webhook"], str(reply)
    baseline.check()


def test_credentials_of_a_url_are_not_logged(start_server, receiver):
    """Delivered, refused, down, redirected and unparsable: each has its own line of code that logs."""
    server = start_server("journal", "--log-level", "trace")
    port = free_port()
    paths = [receiver.path() for _ in range(3)]
    receiver.plan(paths[1], 500)
    receiver.plan(paths[2], 302, headers={"Location": f"http://u:planted-password@127.0.0.1:{port}/x"})
    urls = [receiver.url.replace("//", "//planted-user:planted-password@") + path for path in paths]
    urls.append(f"http://planted-user:planted-password@127.0.0.1:{port}/hook?token=planted-token")
    for url in urls:
        predict_with_webhook(server, url)
    for bad in ("ftp://planted-user:planted-password@example.com/", "http://planted-user:planted-password@/"):
        assert server.post("/predictions", {"input": {}, "webhook": bad}).status == 422
    for path in paths[1:]:
        receiver.wait(path, 2)
    server.stop()
    for planted in ("planted-password", "planted-token"):
        assert planted not in server.log()


def test_every_spelling_of_a_private_address_is_refused(start_guarded_server, receiver, tmp_path):
    proof = Baseline(start_guarded_server("journal"), receiver, tmp_path)
    for host in PRIVATE_HOSTS:
        for scheme in ("http", "https"):
            body = {"input": {"nonce": "never"}, "webhook": f"{scheme}://{host}/hook"}
            reply = exchange(proof.server, json_request(body, prefer="respond-async"))
            assert reply.status == 422, (host, str(reply))
            assert_refused(reply)
    proof.check()


def test_a_host_name_of_a_private_address_is_never_called(start_guarded_server, receiver, tmp_path):
    server = start_guarded_server("journal")
    with hostile_servers.hostile_server(hostile_servers.hangs) as hostile:
        url = f"http://{name_of_this_machine()}:{hostile.url.rpartition(':')[2]}/hook"
        reply = server.post("/predictions", {"input": {"nonce": "named"}, "webhook": url})
        if reply.status == 422:
            assert_refused(reply)
        else:
            assert (reply.status, reply.json["output"]) == (200, "named")
            wait_until(lambda: tried(server, reply.json["id"]), "an attempt to be abandoned")
        assert hostile.requests == 0
    Baseline(server, receiver, tmp_path).assert_slots()


def tried(server, id):
    """Whether an attempt to tell this job's receiver has ended."""
    return [one for one in server.get(f"/admin/deliveries?job={id}").json["deliveries"] if one["attempts"]]


def test_dns_rebinding_never_reaches_a_private_address(tmp_path):
    """DNS rebinding: public when it is checked, private when it is called. The checked address is called."""
    facts = run_in_namespaces("dns_rebinding.py", tmp_path)
    assert facts["private"] == []
    assert "secret" not in str(facts["outputs"])
    public = [output for output in facts["outputs"] if output[0] == "public.test"]
    assert public[0][2] == "succeeded" and "content" in public[0][3], public  # it can call what it may
    assert "/public.test" in facts["public"]
    assert [
        output for output in facts["outputs"] if output[0] == "private.test" and output[2] == "succeeded"
    ] == []

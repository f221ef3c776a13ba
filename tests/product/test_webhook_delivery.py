"""Webhooks: signatures, retries, and the list of attempts."""

import base64
import os
import resource
import signal
import threading
import time
from itertools import count, pairwise
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from waiting import wait_until

OLD, NEW, OTHER = ("whsec_" + base64.b64encode(os.urandom(24)).decode() for _ in range(3))


def deliveries(server, job):
    return server.get(f"/admin/deliveries?job={job}").json["deliveries"]


def settled(server, job, state, count=1):
    """The messages of a job, once `count` of them are in this state."""

    def probe():
        found = deliveries(server, job)
        return found if len([one for one in found if one["state"] == state]) >= count else None

    return wait_until(probe, f"{count} messages about {job} to be {state}")


def test_each_message_has_an_id_and_a_time_without_any_secret(shared_server, receiver):
    server, hook = shared_server("generator"), receiver.path()
    server.predict({"count": 2}, webhook=receiver.url + hook)
    requests = receiver.wait(hook, 4)
    ids = [request.headers["webhook-id"] for request in requests]
    assert len(set(ids)) == 4
    assert all(id.startswith("msg_") and len(id) == 30 for id in ids)
    for request in requests:
        assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
        assert "webhook-signature" not in request.headers


def test_signatures_are_verified_by_the_official_library(start_server, receiver):
    server = start_server("echo", env={"TIDEGATE_WEBHOOK_SECRET": f"{OLD} {NEW}"})
    hook = receiver.path()
    server.predict({"text": "signed ü"}, webhook=receiver.url + hook)
    for request in receiver.wait(hook, 3):
        assert len(request.headers["webhook-signature"].split()) == 2
        for secret in (OLD, NEW):
            assert Webhook(secret).verify(request.body, request.headers)["id"]
        with pytest.raises(WebhookVerificationError):
            Webhook(OTHER).verify(request.body, request.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(OLD).verify(request.body.replace(b"{", b"{ ", 1), request.headers)


def test_the_secrets_file_is_reloaded_on_sighup(start_server, receiver, tmp_path):
    file = tmp_path / "secrets"
    file.write_text(f"# the first\n{OLD}\n")
    server = start_server("echo", "--webhook-secret-file", file)

    def signed_by(secret):
        hook = receiver.path()
        server.predict(webhook=receiver.url + hook, webhook_events_filter=["completed"])
        request = receiver.wait(hook)[0]
        try:
            Webhook(secret).verify(request.body, request.headers)
        except WebhookVerificationError:
            return False
        return True

    assert signed_by(OLD)
    file.write_text("not a secret\n")
    server.signal(signal.SIGHUP)
    wait_until(lambda: "failed to reload" in server.log(), "the failure in the log")
    assert signed_by(OLD), "the old secrets stay when the new ones cannot be read"
    assert "not a secret" not in server.log()
    file.write_text(f"{NEW}\n")
    server.signal(signal.SIGHUP)
    wait_until(lambda: signed_by(NEW), "messages signed with the new secret")
    assert not signed_by(OLD)


@pytest.mark.parametrize("secret", ["hunter2hunter2", "whsec_hunter2!", "whsec_aHVudGVyMg=="])
def test_a_bad_secret_is_refused_at_start_and_not_shown(server_pool, tidegate, tmp_path, secret):
    file = tmp_path / "secrets"
    file.write_text(secret)
    ended = tidegate("serve", "tests/models/echo", "--port", "0", "--webhook-secret-file", file)
    assert ended.returncode == 64
    assert "whsec_" in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "aHVudGVyMg" not in ended.stderr


CURIOUS = """
import os

def predict() -> str:
    with open(f"/proc/{os.getppid()}/environ") as parent:
        return repr(dict(os.environ)) + parent.read()
"""


def test_the_model_does_not_see_the_secret(start_server, tmp_path, receiver):
    model, hook = tmp_path / "curious", receiver.path()
    model.mkdir()
    (model / "cog.yaml").write_text("predict: predict.py:predict\n")
    (model / "predict.py").write_text(CURIOUS)
    server = start_server(model, env={"TIDEGATE_WEBHOOK_SECRET": OLD})
    reply = server.predict(webhook=receiver.url + hook, webhook_events_filter=["completed"])
    assert reply.status == 200
    assert OLD not in reply.body.decode()
    request = receiver.wait(hook)[0]
    assert Webhook(OLD).verify(request.body, request.headers)


def test_a_retried_message_has_the_same_id_and_a_new_timestamp(start_server, receiver):
    server = start_server("echo", env={"TIDEGATE_WEBHOOK_SECRET": OLD})
    hook = receiver.path()
    url = receiver.plan(hook, 500, 404, 302, 500, 200)
    server.predict(id="again", webhook=url, webhook_events_filter=["completed"])
    requests = receiver.wait(hook, 5)
    assert len({(request.headers["webhook-id"], request.body) for request in requests}) == 1
    for request in requests:
        Webhook(OLD).verify(request.body, request.headers)
    assert int(requests[4].headers["webhook-timestamp"]) > int(requests[0].headers["webhook-timestamp"])
    gaps = [later.at - earlier.at for earlier, later in pairwise(requests)]
    assert gaps == sorted(gaps)

    message = settled(server, "again", "delivered")[0]
    assert message["id"] == requests[0].headers["webhook-id"]
    assert [attempt["status"] for attempt in message["attempts"]] == [500, 404, 302, 500, 200]
    assert message["event"] == "completed"


def test_redirects_are_not_followed(shared_server, receiver):
    server, hook, other = shared_server("echo"), receiver.path(), receiver.path()
    url = receiver.plan(hook, 307, headers={"Location": receiver.url + other})
    server.predict(id="redirected", webhook=url, webhook_events_filter=["completed"])
    receiver.wait(hook, 2)
    assert receiver.received(other) == []
    assert deliveries(server, "redirected")[0]["state"] in ("sending", "retrying")


def test_a_410_ends_the_retries(shared_server, receiver):
    server, hook = shared_server("echo"), receiver.path()
    server.predict(id="gone", webhook=receiver.plan(hook, 410), webhook_events_filter=["completed"])
    message = settled(server, "gone", "failed")[0]
    assert len(message["attempts"]) == 1
    assert "410 Gone" in message["given_up"]


def test_retry_after_is_honoured(shared_server, receiver):
    server, hook = shared_server("echo"), receiver.path()
    url = receiver.plan(hook, 503, 200, headers={"Retry-After": "2"})
    server.predict(webhook=url, webhook_events_filter=["completed"])
    first, second = receiver.wait(hook, 2)
    assert second.at - first.at >= 1.9


def test_the_retry_period_is_configurable(start_server, receiver):
    server, hook = start_server("echo", "--webhook-retry-for", "500ms"), receiver.path()
    server.predict(id="short", webhook=receiver.plan(hook, 500), webhook_events_filter=["completed"])
    message = settled(server, "short", "failed")[0]
    assert len(message["attempts"]) >= 2
    assert "--webhook-retry-for" in message["given_up"]
    assert "next_attempt_at" not in message


def test_the_time_of_an_attempt_is_configurable(start_server, receiver):
    server, hook = start_server("echo", "--webhook-timeout", "300ms"), receiver.path()
    hold = threading.Event()
    server.predict(webhook=receiver.plan(hook, hold=hold), webhook_events_filter=["completed"])
    first, second = receiver.wait(hook, 2)[:2]
    hold.set()
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_a_webhook_is_retried_until_the_receiver_recovers(shared_server, receiver):
    server, hook = shared_server("echo"), receiver.path()
    url = receiver.plan(hook, 500)
    server.predict(id="later", webhook=url, webhook_events_filter=["completed"])
    waiting = settled(server, "later", "retrying")[0]
    assert waiting["attempts"][0]["status"] == 500
    receiver.plan(hook, 200)
    settled(server, "later", "delivered")


def test_a_hanging_receiver_does_not_delay_others(shared_server, receiver):
    server, release = shared_server("echo"), threading.Event()
    try:
        slow = receiver.plan(receiver.path(), hold=release)
        for _ in range(5):
            server.predict(webhook=slow, webhook_events_filter=["completed"])
        quick = receiver.path()
        server.predict(webhook=receiver.url + quick, webhook_events_filter=["completed"])
        receiver.wait(quick, timeout=5)
    finally:
        release.set()


def test_a_server_without_file_descriptors_keeps_its_webhooks(start_server, receiver):
    server, hook = start_server("echo"), receiver.path()
    pid = server.process.pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    open_files = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    first_free = next(number for number in count() if number not in open_files)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, usual[1]))
    try:
        # On the connection that is open already.
        server.predict(id="poor", webhook=receiver.url + hook, webhook_events_filter=["completed"])
        assert "error" in settled(server, "poor", "retrying")[0]["attempts"][0]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
    assert receiver.wait_terminal(hook)["status"] == "succeeded"


def test_deliveries_show_all_messages_newest_first_and_no_credentials(shared_server, receiver):
    server, hook = shared_server("generator"), receiver.path()
    url = receiver.url.replace("http://", "http://me:hunter2@") + hook + "?token=hunter3"
    server.predict({"count": 1}, id="shown", webhook=url)
    messages = settled(server, "shown", "delivered", 3)
    assert [message["event"] for message in messages] == ["completed", "output", "start"]
    assert {message["host"] for message in messages} == {receiver.url.removeprefix("http://")}
    assert all(message["attempts"][0]["took_s"] >= 0 for message in messages)
    everything = server.get("/admin/deliveries")
    assert len(everything.json["deliveries"]) >= 3
    assert deliveries(server, "nobody") == []
    for text in (everything.body.decode(), server.log()):
        assert "hunter2" not in text
        assert "hunter3" not in text


@pytest.mark.parametrize("url", ["http://me:hunter2@[bad", "ftp://me:hunter2@example.com/x", "http://"])
def test_an_invalid_webhook_url_is_not_echoed(shared_server, url):
    server = shared_server("echo")
    reply = server.predict(webhook=url)
    assert (reply.status, reply.detail[0]["loc"]) == (422, ["body", "webhook"])
    assert "hunter2" not in reply.body.decode() + server.log()

"""The data of the dashboard: a snapshot, its changes, and who sees what of it."""

from __future__ import annotations

import signal
import time

import pytest
import requests
from fleet_file import account, endpoint, model
from ui_requests import auth, events, read, run, write_tokens
from waiting import wait_until

ALICE, BOB, ROOT = "alice-0123456789abcdef", "bob-fedcba9876543210", "root-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob,{ROOT}:ops:admin"}


def sections(server, token: str | None = None):
    return read(server.url, "snapshot", token)["sections"]


def test_the_sections_of_a_server(shared_server):
    server = shared_server("echo")
    document = read(server.url, "snapshot")
    assert document["epoch"] == read(server.url, "session")["server"]["epoch"]
    assert document["seq"] >= 1
    shown = document["sections"]
    assert set(shown) == {"overview", "history", "models", "queues", "children", "endpoints"}
    [listed] = shown["models"]
    assert (listed["name"], listed["slots"], listed["state"]["health"]) == ("local/echo", 1, "READY")
    [child] = shown["children"]
    assert (child["model"], child["state"], child["slots"]) == ("local/echo", "ready", 1)
    assert shown["queues"] == server.get("/admin/queues").json["queues"]
    assert shown["history"]["step_s"] == 5


def test_numbers_change_with_the_load(start_server, tmp_path):
    server = start_server("echo")
    stream = events(server.url, "changes")
    first = stream.next("snapshot").data
    assert first["sections"]["overview"]["in_flight"] == 0
    gate = tmp_path / "gate"
    for _ in range(3):
        run(server.url, "local/echo", {"gate": str(gate)})
    seen, last = {}, first["seq"]
    for event in stream:
        assert event.name == "change"
        assert event.data["seq"] == last + 1
        last = event.data["seq"]
        seen |= event.data["set"]
        if seen.get("overview", {}).get("waiting") == 2:
            break
    overview = seen["overview"]
    assert (overview["in_flight"], overview["running"], overview["requests_per_s"] > 0) == (3, 1, True)
    assert overview["oldest_wait_s"] >= 0
    [queue] = seen["queues"]
    assert (queue["waiting"], queue["running"], queue["accounts"][0]["waiting"]) == (2, 1, 2)
    [listed] = seen["models"]
    assert (listed["state"]["health"], listed["slots_free"], listed["waiting"]) == ("BUSY", 0, 2)
    gate.touch()
    wait_until(lambda: sections(server)["overview"]["in_flight"] == 0, "the jobs to end")
    failed = run(server.url, "local/echo", {"fail": "x"})
    events(server.url, f"jobs/~/{failed}/events").next("end")
    overview = wait_until(
        lambda: (o := sections(server)["overview"])["error_rate"] > 0 and o, "the failed job to count"
    )
    assert overview["error_rate"] == 0.25
    assert 0 < overview["p50_s"] <= overview["p95_s"] <= overview["p99_s"]
    history = wait_until(
        lambda: (h := sections(server)["history"])["requests"] and sum(h["requests"]) == 4 and h, "a bucket"
    )
    assert sum(history["errors"]) == 1
    assert {len(history[name]) for name in ("errors", "waiting", "in_flight", "p50", "p95", "p99")} == {
        len(history["requests"])
    }


def test_at_most_two_changes_a_second_whoever_watches(start_server):
    server = start_server("echo")
    streams = [events(server.url, "changes") for _ in range(4)]
    began, last = time.monotonic(), 0
    while time.monotonic() - began < 3:
        server.predict({"text": "x"})
    last = read(server.url, "snapshot")["seq"]
    assert 2 <= last <= 2 * (time.monotonic() - began) + 2
    for stream in streams:
        assert stream.next("snapshot").data["seq"] <= last
        stream.close()


def test_a_stream_is_resumed_or_begins_again(start_server):
    server = start_server("echo")
    first = read(server.url, "snapshot")
    server.predict({"text": "x"})
    resumed = events(server.url, f"changes?epoch={first['epoch']}&since={first['seq']}")
    change = next(iter(resumed))
    assert (change.name, change.data["seq"]) == ("change", first["seq"] + 1)
    for stale in (f"epoch=0&since={first['seq']}", f"epoch={first['epoch']}&since=99999", "since=1"):
        assert next(iter(events(server.url, f"changes?{stale}"))).name == "snapshot"


def test_an_account_sees_its_own_share(start_server, tmp_path):
    server = start_server("echo", env=TOKENS)
    gate = tmp_path / "gate"
    for token in (ALICE, BOB, BOB):
        run(server.url, "local/echo", {"gate": str(gate)}, token)
    shown = {token: sections(server, token) for token in (ALICE, BOB, ROOT)}
    assert set(shown[ALICE]) == {"models", "queues"}
    assert {"overview", "children"} <= set(shown[ROOT])

    def jobs(token):
        [queue] = shown[token]["queues"]
        return queue["waiting"] + queue["running"], [entry["account"] for entry in queue["accounts"]]

    assert jobs(ALICE) == (1, ["alice"])
    assert jobs(BOB) == (2, ["bob"])
    assert jobs(ROOT) == (3, ["alice", "bob"])
    [listed] = shown[BOB]["models"]
    assert listed["waiting"] + listed["running"] == 2
    stream = events(server.url, "changes", BOB)
    assert set(stream.next("snapshot").data["sections"]) == {"models", "queues"}
    gate.touch()
    numbers = []
    for event in stream:
        numbers.append(event.data["seq"])
        if "queues" in event.data["set"] and event.data["set"]["queues"][0]["accounts"] == []:
            break
    assert numbers == list(range(2, 2 + len(numbers)))
    assert "alice" not in str(event.data)


def test_a_revoked_token_ends_the_changes(start_server, tmp_path):
    file = tmp_path / "tokens"
    write_tokens(file, alice=ALICE, bob=BOB)
    server = start_server("echo", "--tokens-file", str(file))
    stream = events(server.url, "changes", ALICE)
    stream.next("snapshot")
    write_tokens(file, bob=BOB)
    server.signal(signal.SIGHUP)
    list(stream)  # It ends.
    assert requests.get(f"{server.url}/ui/api/snapshot", headers=auth(ALICE), timeout=15).status_code == 401


def test_the_workers_of_an_endpoint(platform):
    requests.post(f"{platform.url}/v2/echo/run", json={"input": {}}, timeout=15)
    assert platform.call("GET", "/v2/echo/job-take/w1").json()["id"]
    [shown] = sections(platform)["endpoints"]
    assert (shown["name"], shown["waiting"], shown["running"]) == ("echo", 0, 1)
    [worker] = shown["workers"]
    assert (worker["id"], worker["state"], worker["jobs"]) == ("w1", "running", 1)
    assert worker["last_seen_s"] >= 0


@pytest.mark.parametrize("accounts", [(), (account("a"),)])
def test_the_backends_of_a_router(router, upstream, accounts):
    running = router(model("m", endpoint(upstream.url)), accounts=accounts)
    token = "a-token" if accounts else None
    assert running.chat(token=token).status == 200
    shown = sections(running, token)
    assert shown["models"][0]["name"] == "m"
    if accounts:
        assert set(shown) == {"models"}
        return
    assert set(shown) == {"overview", "history", "models", "router"}
    [routed] = shown["router"]["models"]
    [backend] = routed["endpoints"]
    assert (routed["name"], backend["url"], backend["health"]) == ("m", upstream.url, "healthy")
    assert backend["kind"] and backend["permits"] > 0 and backend["draining"] is False
    wait_until(lambda: sections(running)["overview"]["p50_s"], "the request to count")


def test_an_open_dashboard_does_not_delay_the_shutdown(start_server):
    server = start_server("echo")
    stream = events(server.url, "changes")
    stream.next("snapshot")
    began = time.monotonic()
    server.signal(signal.SIGTERM)
    server.wait_exit()
    assert time.monotonic() - began < 4

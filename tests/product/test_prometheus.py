"""The Prometheus metrics: names, descriptions, values."""

import os
import re
import shutil
import signal

import pytest
from environment import MODELS, ROOT
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_newer
from prometheus_client.parser import text_string_to_metric_families as parse_older
from raw_http import RawConnection
from waiting import wait_until

PAGE = ROOT / "docs" / "reference" / "metrics.md"
MODEL = {"model": "local/echo"}
OPEN_METRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}


def families(server, **options):
    reply = server.get("/metrics", **options)
    assert reply.status == 200, str(reply)
    return list(parse_older(reply.body.decode()))


def value(server, name, **labels):
    """The sum of the samples with this name and these labels."""
    samples = [sample for family in families(server) for sample in family.samples if sample.name == name]
    fitting = [sample for sample in samples if labels.items() <= sample.labels.items()]
    assert fitting, f"no {name} with {labels}: {samples}"
    return sum(sample.value for sample in fitting)


def becomes(server, expected, name, **labels):
    wait_until(lambda: value(server, name, **labels) == expected, f"{name} {labels} to be {expected}")


def documented():
    """Name to (type, labels) as the page has them."""
    page = PAGE.read_text().partition("\n## API processes of a cluster\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", page, re.M)
    return {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_reference_page_lists_exactly_the_exported_metrics(start_server, receiver, tmp_path):
    server = start_server("batches", env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")})
    server.predict(webhook=receiver.url + receiver.path())
    shown = {}
    for family in families(server):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = frozenset(name for sample in family.samples for name in sample.labels if name != "le")
        shown[name] = (family.type, labels)
        assert family.documentation, name
        assert family.samples, f"{name} has no value"
    assert shown == documented()


def test_metric_names_have_prefix_and_unit(shared_server):
    for family in families(shared_server("echo")):
        assert family.name.startswith(("tidegate_", "process_"))
        if family.type == "histogram":
            assert family.name.endswith(("_seconds", "_changes", "_size")), family.name


def test_both_exposition_formats_are_supported(shared_server):
    server = shared_server("echo")
    older = server.get("/metrics")
    assert older.content_type == "text/plain; version=0.0.4; charset=utf-8"
    newer = server.get("/metrics", headers=OPEN_METRICS)
    assert newer.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert newer.body.endswith(b"# EOF\n") and b"# EOF" not in older.body
    # Of the parsers, the one of OpenMetrics is the strict one.
    names = [family.name for family in parse_newer(newer.body.decode())]
    assert names == [family.name for family in parse_older(older.body.decode())]


def test_jobs_are_counted_by_api_kind_and_status(start_server):
    server = start_server("echo")
    server.predict({"text": "one"})
    server.predict({"fail": "no"})
    server.post("/v1/predictions", {"version": "local/echo", "input": {}}, headers={"Prefer": "wait"})
    ended = "tidegate_jobs_finished_total"
    assert value(server, ended, face="cog", kind="prediction", status="succeeded", **MODEL) == 1
    assert value(server, ended, face="cog", kind="prediction", status="failed", **MODEL) == 1
    becomes(server, 1, ended, face="replicate", kind="prediction", status="succeeded", **MODEL)
    assert value(server, "tidegate_jobs_accepted_total", **MODEL) == 3
    assert value(server, "tidegate_job_wait_seconds_count", **MODEL) == 3
    assert value(server, "tidegate_job_run_seconds_count", **MODEL) == 3
    assert value(server, "tidegate_job_run_seconds_bucket", le="+Inf", **MODEL) == 3


def test_queue_and_slot_gauges_show_a_full_server(start_server, gate):
    server = start_server("echo", "--queue", "5")
    server.start({"gate": str(gate)}, id="runs")
    becomes(server, 1, "tidegate_jobs_running", **MODEL)
    for number in range(3):
        server.start({}, id=f"waits{number}")
    assert value(server, "tidegate_jobs_waiting", **MODEL) == 3
    assert value(server, "tidegate_job_oldest_wait_seconds", **MODEL) > 0
    assert value(server, "tidegate_slots", **MODEL) == 1
    assert value(server, "tidegate_slots_free", **MODEL) == 0
    assert value(server, "tidegate_model_health", state="busy", **MODEL) == 1
    server.cancel("waits0")
    becomes(server, 2, "tidegate_jobs_waiting", **MODEL)
    becomes(server, 1, "tidegate_jobs_finished_total", status="canceled", **MODEL)
    gate.open()
    becomes(server, 0, "tidegate_jobs_waiting", **MODEL)
    becomes(server, 1, "tidegate_slots_free", **MODEL)
    assert value(server, "tidegate_job_oldest_wait_seconds", **MODEL) == 0
    assert value(server, "tidegate_model_health", state="ready", **MODEL) == 1
    assert value(server, "tidegate_model_health", **MODEL) == 1, "one state at a time"
    assert value(server, "tidegate_job_wait_seconds_count", **MODEL) == 3, "what never began has not waited"


def test_refusals_are_counted_by_their_reason(start_server, gate):
    server = start_server("echo")
    server.start({"gate": str(gate)}, id="runs")
    assert server.post("/predictions", {"input": {}}).status == 409
    assert server.post("/predictions", {"input": {"limit": 99}}).status == 422
    assert server.post("/predictions", {"input": {}, "webhook": "ftp://x"}).status == 422
    refused = "tidegate_jobs_refused_total"
    for reason in ("at_capacity", "invalid_input", "bad_webhook"):
        assert value(server, refused, face="cog", reason=reason, **MODEL) == 1, reason
    assert value(server, refused, **MODEL) == 3
    responses = "tidegate_http_responses_total"
    assert value(server, responses, face="cog", resource="predictions", status="4xx") == 3
    assert value(server, responses, face="cog", resource="predictions", status="2xx") == 1


TOKENS = "alice-0123456789abcdef:alice,root-00112233445566:ops:admin"
ALICE = "Authorization: Bearer alice-0123456789abcdef\r\n"
ADMIN = {"Authorization": "Bearer root-00112233445566"}
JSON = "Content-Type: application/json\r\n"
#: What is sent to a server that turns it away, the status, and the reason that is counted.
TURNED_AWAY = [
    ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, "bad_framing"),
    ("GET / HTTP/1.1\r\n" + "X: y\r\n" * 300 + "\r\n", 431, "head_too_large"),
    ("GET / HTTP/1.1\r\nX:", 408, "head_too_slow"),
    ("\x16\x03\x01\x02\x00\x01", 400, "wrong_protocol"),
    ("GET / HTTP/1.1\r\n\r\n", 401, "no_token"),
    (f"GET /metrics HTTP/1.1\r\n{ALICE}\r\n", 403, "not_allowed"),
    (f"POST /predictions HTTP/1.1\r\n{ALICE}{JSON}Content-Length: 2000\r\n\r\n", 413, "body_too_large"),
    (f"POST /predictions HTTP/1.1\r\n{ALICE}{JSON}Content-Length: 10\r\n\r\n{{", 408, "body_too_slow"),
    (
        f"POST /predictions HTTP/1.1\r\n{ALICE}{JSON}Transfer-Encoding: chunked\r\n\r\nx\r\n",
        400,
        "body_broken",
    ),
    (
        f"POST /predictions HTTP/1.1\r\n{ALICE}Content-Type: text/css\r\nContent-Length: 1\r\n\r\nx",
        415,
        "wrong_media",
    ),
]


def test_requests_refused_before_a_model_are_counted_by_reason(start_server):
    limits = (
        "--max-body",
        "1000",
        "--header-timeout",
        "300ms",
        "--body-timeout",
        "300ms",
        "--rate-limit",
        "1/h",
    )
    server = start_server("echo", *limits, env={"TIDEGATE_API_TOKENS": TOKENS})

    def counted():
        text = server.get("/metrics", headers=ADMIN).body.decode()
        samples = [sample for family in parse_older(text) for sample in family.samples]
        return {s.labels["reason"]: s.value for s in samples if s.name == "tidegate_http_refused_total"}

    for request, status, reason in TURNED_AWAY:
        before = counted()
        with RawConnection(server) as connection:
            connection.send(request.encode("latin-1"))
            assert connection.only_reply().status == status, reason
        wait_until(lambda b=before, r=reason: counted() == {**b, r: b[r] + 1}, f"{reason} to be counted")
    alice = {"Authorization": "Bearer alice-0123456789abcdef"}
    assert [server.get("/v1/models", headers=alice).status for _ in range(3)] == [200, 429, 429]
    assert counted()["too_often"] == 2


def test_connections_over_the_limit_are_counted(start_server):
    """The connection that asks is the one that there is room for."""
    assert value(start_server("echo", "--max-connections", "1"), "tidegate_http_full_total") > 0
    assert value(start_server("echo"), "tidegate_http_full_total") == 0


def test_a_child_that_is_killed_is_counted_with_its_cause(start_server):
    server = start_server("echo")
    pid = server.get("/admin/children").json["children"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    becomes(server, 1, "tidegate_child_deaths_total", cause="signal", **MODEL)
    becomes(server, 1, "tidegate_child_restarts_total", **MODEL)
    becomes(server, 1, "tidegate_children", state="ready", **MODEL)
    assert value(server, "tidegate_child_deaths_total", **MODEL) == 1
    assert value(server, "tidegate_child_memory_bytes", child="0", **MODEL) > 1_000_000


@pytest.mark.parametrize(("how", "cause"), [("exit", "exit"), ("segfault", "signal")])
def test_child_deaths_are_counted_by_cause(start_server, how, cause):
    server = start_server("crash")
    server.predict({"how": how})
    becomes(server, 1, "tidegate_child_deaths_total", cause=cause, model="local/crash")
    assert value(server, "tidegate_child_deaths_total", model="local/crash") == 1
    assert value(server, "tidegate_jobs_finished_total", status="failed", model="local/crash") == 1


def test_a_child_killed_by_the_server_is_counted_as_such(start_server):
    server = start_server("hostile", "--cancel-grace", "200ms")
    name = "local/hostile"
    server.start({"how": "swallow"}, id="stubborn")
    # Before the code runs, a cancel ends the job without a kill.
    wait_until(lambda: "begun" in server.get("/predictions/stubborn").json.get("logs", ""), "the code to run")
    server.cancel("stubborn")
    becomes(server, 1, "tidegate_child_deaths_total", cause="killed", model=name)


def test_a_failed_setup_is_counted(start_server):
    server = start_server("setup_fails")
    name = "local/setup_fails"
    assert value(server, "tidegate_model_health", state="setup_failed", model=name) == 1
    assert value(server, "tidegate_child_deaths_total", cause="setup", model=name) == 1
    assert value(server, "tidegate_children", state="setup_failed", model=name) == 1
    assert value(server, "tidegate_model_setup_seconds", model=name) > 0
    server.post("/predictions", {"input": {}})
    assert value(server, "tidegate_jobs_refused_total", reason="not_ready", model=name) == 1


def test_webhook_attempts_are_counted_by_their_result(start_server, receiver):
    server = start_server("echo", "--webhook-retry-for", "1s")
    attempts = "tidegate_webhook_attempts_total"
    hook = receiver.plan(receiver.path(), 500, 200)
    server.predict(webhook=hook, webhook_events_filter=["completed"])
    becomes(server, 1, attempts, result="delivered", **MODEL)
    assert value(server, attempts, result="not_taken", **MODEL) == 1
    assert value(server, "tidegate_webhook_attempt_seconds_count", **MODEL) == 2

    unreachable = "http://127.0.0.1:9/hook"
    server.predict(webhook=unreachable, webhook_events_filter=["completed"])
    becomes(server, 1, "tidegate_webhooks_waiting", **MODEL)
    becomes(server, 1, "tidegate_webhooks_given_up_total", **MODEL)
    assert value(server, attempts, result="no_answer", **MODEL) >= 2
    becomes(server, 0, "tidegate_webhooks_waiting", **MODEL)


def test_commits_of_the_store_are_measured(start_server, tmp_path):
    server = start_server("echo", env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")})
    before = value(server, "tidegate_store_commit_changes_sum")
    server.predict(id="kept")
    assert value(server, "tidegate_store_commit_changes_sum") >= before + 2
    assert value(server, "tidegate_store_commit_seconds_count") > 0


def test_process_metrics_are_exported(shared_server):
    server = shared_server("echo")
    assert value(server, "process_resident_memory_bytes") > 1_000_000
    assert 5 < value(server, "process_open_fds") < value(server, "process_max_fds")
    assert value(server, "process_start_time_seconds") > 1_700_000_000
    assert value(server, "tidegate_build_info") == 1


def test_each_model_has_its_own_metrics(start_server, tmp_path):
    folder = tmp_path / "both"
    for name in ("echo", "crash"):
        shutil.copytree(MODELS / name, folder / name)
    server = start_server(folder)
    asked = {"echo": {}, "crash": {"how": "exit"}}
    for name, input in asked.items():
        body = {"version": f"local/{name}", "input": input}
        assert server.post("/v1/predictions", body, headers={"Prefer": "wait"}).status == 201
    ended = "tidegate_jobs_finished_total"
    becomes(server, 1, ended, model="local/echo", face="replicate", status="succeeded")
    becomes(server, 1, ended, model="local/crash", face="replicate", status="failed")
    assert value(server, ended, model="local/echo") == 1
    becomes(server, 1, "tidegate_child_deaths_total", model="local/crash", cause="exit")
    assert value(server, "tidegate_child_deaths_total", model="local/echo") == 0
    assert value(server, "tidegate_job_run_seconds_count", model="local/echo") == 1
    for family in families(server):
        series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(set(series)) == len(series), f"{family.name} has a sample twice"


def test_only_administrators_may_read_metrics(start_server):
    tokens = "alice-0123456789abcdef:alice,root-00112233445566:ops:admin"
    server = start_server("echo", env={"TIDEGATE_API_TOKENS": tokens})
    assert server.get("/metrics").status == 401
    alice = server.get("/metrics", headers={"Authorization": "Bearer alice-0123456789abcdef"})
    assert (alice.status, "administrator" in alice.json["error"]) == (403, True)
    admin = server.get("/metrics", headers={"Authorization": "Bearer root-00112233445566"})
    assert admin.status == 200 and b"tidegate_build_info" in admin.body


def test_jobs_resumed_after_a_kill_are_counted(start_server, receiver, gate, tmp_path):
    env, path = {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}, receiver.path()
    before = start_server("echo", "--on-lost", "fail", env=env)
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    id = before.start({"text": "x", "gate": str(gate)}, **hook).json["id"]
    wait_until(lambda: before.get(f"/predictions/{id}").json["status"] == "processing", "the model to begin")
    os.kill(before.process.pid, signal.SIGKILL)
    before.process.wait()
    after = start_server("echo", "--on-lost", "fail", env=env)
    assert receiver.wait_terminal(path)["status"] == "failed"
    becomes(after, 1, "tidegate_jobs_finished_total", status="failed", **MODEL)
    becomes(after, 1, "tidegate_webhook_attempts_total", result="delivered", **MODEL)

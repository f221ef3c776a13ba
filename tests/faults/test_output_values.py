"""Rows E12 to E16 of docs/reliability.md: outputs that cannot be serialized or are too large."""

import json

import pytest
from footprint import assert_recovers, wait_for_logs
from http_client import wait_for_end
from processes import peak_memory, reset_peak_memory
from test_user_code_crashes import fails_once

MIB = 1024 * 1024

NO_JSON = [
    "nan",
    "infinity",
    "plain_bytes",
    "an_object",
    "tuple_key",
    "a_class",
    "a_module",
    "a_lambda",
    "raises_when_read",
    "dataclass_with_object",
]
ODD_JSON = ["surrogate", "surrogate_key", "large_int", "mixed_keys", "nested_set", "changes_while_read"]


@pytest.mark.parametrize("how", NO_JSON)
def test_a_value_that_is_not_json_fails_the_job(server, receiver, how):
    with assert_recovers(server):
        fails_once(server, receiver, f"values.{how}")


@pytest.mark.parametrize("how", [*ODD_JSON, "lying_text", "lying_int"])
def test_an_unusual_value_ends_the_job_once_with_valid_json(server, receiver, how):
    hook = receiver.path()
    with assert_recovers(server):
        id = server.start({"how": f"values.{how}"}, webhook=receiver.url + hook).json["id"]
        body = receiver.wait_terminal(hook)
    assert body["status"] in ("succeeded", "failed")
    looked_up = server.get(f"/predictions/{id}")
    json.loads(looked_up.body.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} on the wire"))
    assert looked_up.json["status"] == body["status"]


@pytest.mark.parametrize("how", ["cyclic_list", "cyclic_dict", "endless_objects"])
def test_a_cyclic_output_fails_the_job_and_keeps_the_child(server, receiver, how):
    with assert_recovers(server) as watch:
        fails_once(server, receiver, f"values.{how}")
    assert "STARTING" not in watch.statuses


@pytest.mark.parametrize("how", ["deep", "deep_dict"])
@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_deeply_nested_output_ends_the_job_once_and_keeps_the_child(server, receiver, how, depth):
    hook = receiver.path()
    with assert_recovers(server) as watch:
        server.start({"how": f"values.{how}", "number": depth}, webhook=receiver.url + hook)
        sent = receiver.wait(hook, 2)[-1]
        assert b'"status":"failed"' in sent.body if depth > 1000 else True
    assert "STARTING" not in watch.statuses


@pytest.mark.timeout(90)
def test_an_output_of_64_mib_is_delivered(server, receiver):
    hook = receiver.path()
    with assert_recovers(server):
        reset_peak_memory(server.process.pid)
        server.start(
            {"how": "values.text", "number": 63},
            webhook=receiver.url + hook,
            webhook_events_filter=["completed"],
        )
        body = receiver.wait_terminal(hook, timeout=60)
    assert (body["status"], len(body["output"])) == ("succeeded", 63 * MIB)
    assert peak_memory(server.process.pid) < 600 * MIB


@pytest.mark.parametrize(("how", "number"), [("text", 3), ("stream", 3), ("stream", 2000)])
def test_an_output_above_max_output_fails_with_the_reason(start_server, receiver, how, number):
    server = start_server("faults", "--max-output", "2MiB")
    with assert_recovers(server):
        reset_peak_memory(server.process.pid)
        body = fails_once(server, receiver, f"values.{how}", number=number)
    assert "--max-output" in body["error"]
    assert peak_memory(server.process.pid) < 200 * MIB


def test_an_output_just_below_max_output_is_delivered(start_server):
    server = start_server("faults", "--max-output", "4MiB")
    assert server.predict({"how": "values.text", "number": 3}).json["status"] == "succeeded"
    assert len(server.predict({"how": "values.stream", "number": 3}).json["output"]) == 3


def test_many_empty_values_are_delivered(server, receiver):
    hook = receiver.path()
    with assert_recovers(server):
        reset_peak_memory(server.process.pid)
        server.start(
            {"how": "values.empties", "number": 100_000},
            webhook=receiver.url + hook,
            webhook_events_filter=["completed"],
        )
        body = receiver.wait_terminal(hook, timeout=40)
    assert body["status"] == "succeeded" and body["output"] == [""] * 100_000
    assert peak_memory(server.process.pid) < 300 * MIB


def test_a_wide_output_is_delivered(server):
    with assert_recovers(server):
        body = server.predict({"how": "values.huge_mapping", "number": 100_000}, timeout=30).json
    assert len(body["output"]) == 100_000


@pytest.mark.parametrize("how", ["metrics", "same_metric"])
def test_a_flood_of_metrics_is_bounded(server, receiver, how):
    hook = receiver.path()
    with assert_recovers(server):
        reset_peak_memory(server.process.pid)
        server.start({"how": f"values.{how}", "number": 50_000}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=40)
    assert body["status"] in ("succeeded", "failed")
    assert peak_memory(server.process.pid) < 300 * MIB


def test_invalid_metrics_are_refused_one_by_one(server):
    with assert_recovers(server):
        body = server.predict({"how": "values.odd_metrics"}).json
    assert body["status"] == "succeeded"
    assert body["metrics"]["predict_time"] > 0
    assert "deep: " in "".join(body["output"]) and "cyclic: " in "".join(body["output"])


@pytest.mark.parametrize(
    "how", ["endless", "endless_fast", "close_raises", "ignores_close", "endless_iterator"]
)
def test_an_endless_output_is_stopped_by_a_cancel(start_server, how):
    server = start_server("faults", "--cancel-grace", "500ms")
    with assert_recovers(server):
        server.start({"how": f"values.{how}"}, id="endless")
        if how != "endless_iterator":
            wait_for_logs(server, "endless")
        assert server.cancel("endless").status == 200
        assert wait_for_end(server, "endless")["status"] == "canceled"


def test_an_endless_output_is_stopped_when_its_client_disconnects(start_server):
    server = start_server("generator", "--cancel-grace", "500ms")
    stream = server.stream({"count": 10**9})
    stream.next("output")
    stream.close()
    server.wait_health("READY")


def test_an_endless_output_is_stopped_by_its_deadline(start_server, receiver):
    server = start_server("faults", "--job-timeout", "500ms", "--cancel-grace", "500ms")
    with assert_recovers(server):
        body = fails_once(server, receiver, "values.endless")
    assert "--job-timeout" in body["error"]
    assert body["output"], "what came before the end is kept"


def test_an_endless_fast_output_stops_at_its_limit_in_bounded_memory(start_server, receiver):
    server = start_server("faults", "--max-output", "16MiB")
    with assert_recovers(server):
        reset_peak_memory(server.process.pid)
        fails_once(server, receiver, "values.endless_fast")
    assert peak_memory(server.process.pid) < 300 * MIB


@pytest.mark.parametrize("how", ["dies_after", "exits_after"])
def test_a_generator_that_fails_keeps_the_values_before_the_failure(server, receiver, how):
    with assert_recovers(server):
        body = fails_once(server, receiver, f"values.{how}", number=5)
    assert body["output"] == [0, 1, 2, 3, 4]

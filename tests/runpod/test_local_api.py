"""Our local API compared with Runpod's own, response by response."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from http_client import Reply
from server_process import Server

ID = re.compile(r"test-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
JSON = {"content-type": "application/json"}


def comparable(reply: Reply) -> tuple[int, str | None, Any]:
    """The response without what differs each time: ids, and stack frames of the caller."""
    body = json.loads(ID.sub("ID", reply.body.decode()))
    if isinstance(body, dict) and str(body.get("error", "")).startswith('{"error_type"'):
        error = json.loads(body["error"])
        last = error.pop("error_traceback").strip().splitlines()
        body["error"] = error | {"first": last[0], "last": last[-1]}
    return reply.status, reply.content_type, body


@pytest.fixture
def compare(handler_pool, package) -> Callable[[str, Callable[[Server], Reply]], Reply]:
    def compare(script: str, request: Callable[[Server], Reply]) -> Reply:
        theirs = request(handler_pool.shared("runpod", script))
        ours = request(handler_pool.shared(package, script))
        assert comparable(ours) == comparable(theirs)
        return ours

    return compare


def brought(path: str, input: Any) -> Callable[[Server], Reply]:
    return lambda server: server.post(path, {"input": input})


def run_then(path: str, input: Any) -> Callable[[Server], Reply]:
    def ask(server: Server) -> Reply:
        job = server.post("/run", {"input": input}).json["id"]
        return server.post(f"/{path}/{job}")

    return ask


def test_a_new_job_has_an_id_and_is_in_progress(compare):
    reply = compare("plain.py", brought("/run", {}))
    assert reply.json["status"] == "IN_PROGRESS" and ID.fullmatch(reply.json["id"])


@pytest.mark.parametrize(
    "result",
    [
        "text",
        "number",
        "nothing",
        "true",
        "list",
        "wrapped",
        "falsy error",
        "error",
        "error and more",
        "null inside",
        "long integer",
        "no number",
        "other types",
    ],
)
@pytest.mark.parametrize(
    "ask", [lambda i: brought("/runsync", i), lambda i: run_then("status", i)], ids=["runsync", "status"]
)
def test_results_match_runpods(compare, ask, result):
    compare("plain.py", ask({"result": result}))


def test_exceptions_match_runpods(compare):
    reply = compare("plain.py", brought("/runsync", {"raise": "värde"}))
    assert reply.status == 200 and reply.json["status"] == "FAILED"


def test_asynchronous_handlers_match_runpods(compare):
    compare("coroutine.py", brought("/runsync", {}))
    compare("coroutine.py", run_then("status", {"raise": "x"}))


@pytest.mark.parametrize("script", ["generator.py", "async_generator.py"])
@pytest.mark.parametrize("path", ["status", "stream"])
def test_generators_match_runpods(compare, script, path):
    reply = compare(script, run_then(path, {"count": 2}))
    assert reply.json["status"] == "COMPLETED"


def test_runsync_waits_for_a_generator(compare):
    compare("generator.py", brought("/runsync", {"count": 2}))
    compare("generator.py", brought("/runsync", {"count": 0}))


def test_asynchronous_jobs_run_at_the_same_time_as_with_runpods(handler_pool, package):
    """Without a `concurrency_modifier`; Runpod's own server has no limit."""
    for kind in ("runpod", package):
        server, body = handler_pool.shared(kind, "meeting.py"), {"input": {"together": 12}}
        with ThreadPoolExecutor(12) as pool:
            replies = list(pool.map(server.post, ["/runsync"] * 12, [body] * 12))
        assert [reply.json["output"] for reply in replies] == [{"met": True}] * 12, kind


def test_the_root_is_a_page_as_with_runpods(handler_pool, package):
    for kind in ("runpod", package):
        reply = handler_pool.shared(kind, "plain.py").get("/")
        assert (reply.status, reply.content_type.split(";")[0]) == (200, "text/html"), kind
    ours = handler_pool.shared(package, "plain.py").get("/", headers={"accept": "application/json"})
    assert ours.json["predictions_url"] == "/predictions", "the index of Cog's API"


def test_a_handler_that_is_not_a_generator_has_no_stream(compare):
    assert "must be a generator" in compare("plain.py", run_then("stream", {})).json["error"]


@pytest.mark.parametrize("path", ["/status/none", "/stream/none"])
def test_responses_for_unknown_jobs_match_runpods(compare, path):
    assert compare("plain.py", lambda server: server.post(path)).json["error"] == "Job ID not found"


@pytest.mark.parametrize("path", ["/run", "/runsync"])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[]",
        '"x"',
        "5",
        "null",
        '{"input": null}',
        '{"input": [1, 2]}',
        '{"input": "x"}',
        '{"input": 5, "webhook": 5}',
        '{"input": {}, "webhook": {"a": [1]}}',
    ],
)
def test_responses_to_invalid_bodies_match_runpods(compare, path, body):
    assert (
        compare("plain.py", lambda server: server.request("POST", path, data=body, headers=JSON)).status
        == 422
    )


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
def test_responses_to_other_content_types_match_runpods(compare, content_type):
    headers = {"content-type": content_type}
    ask = lambda server: server.request("POST", "/run", data='{"input": {}}', headers=headers)  # noqa: E731
    assert compare("plain.py", ask).status == 422


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": {"a": [NaN, 1], "b": "NaN"}}',
        b'{"input": {"a": [Infinity, -Infinity, "-Infinity"]}}',
        b'\xef\xbb\xbf{"input": {"a": 1}}',
        b'{"input": {"a": 123456789012345678901234567890}}',
    ],
    ids=["NaN", "infinities", "mark", "long integer"],
)
def test_pythons_json_extensions_are_read_as_runpod_does(compare, body):
    reply = compare("echo.py", lambda server: server.request("POST", "/runsync", data=body, headers=JSON))
    assert reply.json["status"] == "COMPLETED"


def test_responses_to_broken_json_are_like_runpods(handler_pool, package):
    def ask(kind):
        return handler_pool.shared(kind, "plain.py").request("POST", "/run", data='{"a": ]', headers=JSON)

    ours, theirs = ask(package), ask("runpod")
    (one,), (other,) = ours.detail, theirs.detail
    assert ours.status == theirs.status == 422
    assert (
        one.keys() == other.keys()
        and one["type"] == other["type"] == "json_invalid"
        and one["msg"] == other["msg"]
    )


def test_responses_to_wrong_methods_match_runpods(compare):
    assert compare("plain.py", lambda server: server.request("DELETE", "/run")).status == 405


def test_additional_request_fields_are_ignored(compare):
    compare(
        "plain.py",
        lambda server: server.post("/runsync", {"input": {"result": "text"}, "id": "mine", "policy": {}}),
    )


def test_realtime_returns_the_bare_result(handler_pool, package):
    for kind in ("runpod", package):
        server = handler_pool.fresh(kind, "plain.py", env={"RUNPOD_ENDPOINT_ID": "ep-1"})
        ask = lambda body, server=server: server.post("/ep-1/realtime", body)  # noqa: E731
        told = [
            ask({"id": "r1", "input": {"result": result}}) for result in ("text", "list", "error", "nothing")
        ]
        assert [reply.json for reply in told] == [
            {"output": "x"},
            {"output": [1, {"a": None}]},
            {"error": "no"},
            {"output": None},
        ]
        assert ask({"id": "r1", "input": [1]}).json.keys() == {"error"}
        assert ask({"input": {}}).detail[0]["loc"] == ["body", "id"]
        server.stop()


def test_without_an_endpoint_there_is_no_realtime(handler):
    assert handler("plain.py").post("/ep-1/realtime", {"id": "r1", "input": {}}).status == 404

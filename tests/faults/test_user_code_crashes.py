"""Rows E1, E2, E4, E5 of docs/reliability.md: user code that exits, raises, or breaks its channels."""

import pytest
from footprint import assert_recovers

DEATHS = ["exit", "exit_well", "segfault", "abort", "kill", "kill_group", "thread_exits", "stack_overflow"]

ERRORS = {
    "exit": "leaving",
    "base": "BaseException: base",
    "interrupt": "KeyboardInterrupt",
    "generator_exit": "GeneratorExit",
    "stop_iteration": "StopIteration: a value",
    "stop_in_generator": "generator raised StopIteration",
    "recursion": "RecursionError",
    "memory_error": "MemoryError",
    "mute": "Mute",
    "quits": "Quits",
    "liar": "Liar",
    "not_text": "NotText",
    "bad_class": "",
    "surrogate": "half",
    "group": "ValueError: first",
    "endless_chain": "ValueError",
}


def fails_once(server, receiver, how, **input):
    """Run a job with a webhook; both the webhook and a lookup say `failed`, once. Returns its body."""
    hook = receiver.path()
    id = server.start(
        {"how": how, **input}, webhook=receiver.url + hook, webhook_events_filter=["completed"]
    ).json["id"]
    body = receiver.wait_terminal(hook, timeout=30)
    assert body["status"] == "failed", body
    assert body["error"], "a failure says why"
    assert server.get(f"/predictions/{id}").json["status"] == "failed"
    assert len(receiver.received(hook)) == 1
    return body


@pytest.mark.parametrize("how", DEATHS)
def test_a_child_that_exits_fails_its_job_and_is_replaced(server, receiver, how):
    with assert_recovers(server):
        body = fails_once(server, receiver, f"deaths.{how}")
    assert body["error"].startswith("Worker crashed")


def test_all_jobs_of_a_crashed_child_fail_and_its_slots_return(start_server, receiver, gate):
    server = start_server("faults_async")
    hooks = [receiver.path() for _ in range(3)]
    with assert_recovers(server, slots=4):
        for hook in hooks:
            server.start({"how": "gate", "gate": str(gate)}, webhook=receiver.url + hook)
        server.start({"how": "exits"})
        bodies = [receiver.wait_terminal(hook) for hook in hooks]
    assert {body["status"] for body in bodies} == {"failed"}


@pytest.mark.parametrize("how", ERRORS)
def test_any_exception_fails_the_job_and_keeps_the_child(server, receiver, how):
    pid = server.predict({"how": "processes.python", "text": "import os; print(os.getppid())"}).json["output"]
    with assert_recovers(server):
        body = fails_once(server, receiver, f"errors.{how}")
    assert ERRORS[how] in body["error"]
    again = server.predict({"how": "processes.python", "text": "import os; print(os.getppid())"}).json[
        "output"
    ]
    assert again == pid, "the child was replaced for an exception"


def test_a_huge_error_message_is_truncated(server, receiver):
    with assert_recovers(server):
        body = fails_once(server, receiver, "errors.huge", number=80 << 20)
    assert len(body["error"]) <= (1 << 20) + 200


def test_raising_the_cancel_exception_is_a_failure(server):
    with assert_recovers(server):
        body = server.predict({"how": "errors.own_cancel"}).json
    assert body["status"] in ("failed", "canceled")


GARBAGE = [
    "all_garbage",
    "zeros",
    "too_long",
    "other_job",
    "deep_metric",
    "bad_utf8",
    "unknown_message",
]


@pytest.mark.parametrize("how", GARBAGE)
def test_garbage_on_a_channel_fails_the_job_and_replaces_the_child(server, receiver, how):
    with assert_recovers(server):
        body = fails_once(server, receiver, f"wire.{how}")
    assert body["error"].startswith("Worker crashed")


@pytest.mark.parametrize("how", ["deep_output", "bad_metric", "second_ready"])
def test_a_forged_message_ends_only_its_own_job_once(server, how):
    with assert_recovers(server):
        # Not read as JSON: a forged output may be deeper than Python can read.
        reply = server.predict({"how": f"wire.{how}"}, timeout=30)
    assert reply.status == 200
    assert b'"status":"failed"' in reply.body or b'"status":"succeeded"' in reply.body


def test_a_job_that_reports_its_end_twice_does_not_affect_the_next_job(server, receiver):
    with assert_recovers(server):
        hook = receiver.path()
        server.start({"how": "wire.own_end", "text": "twice"}, id="twice", webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook)
    assert body["status"] == "succeeded"
    assert server.get("/predictions/twice").json["output"] == body["output"]


def test_a_flood_on_the_control_channel_is_bounded(server):
    with assert_recovers(server):
        body = server.predict({"how": "wire.control_flood", "number": 16}, timeout=30).json
    assert body["status"] in ("failed", "succeeded")


@pytest.mark.parametrize("how", ["close_slots", "close_all"])
def test_closed_channels_fail_the_job_and_replace_the_child(server, receiver, how):
    with assert_recovers(server):
        body = fails_once(server, receiver, f"wire.{how}")
    assert body["error"].startswith("Worker crashed")


def test_closed_standard_streams_do_not_affect_jobs(server):
    with assert_recovers(server):
        assert server.predict({"how": "patches.closed_streams"}).json["output"] == "patched"
    assert server.predict({"text": "again"}).json["logs"] == "echo again\n"

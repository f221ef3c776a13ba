"""spec/cog.md §4: cancellation."""

import time

import pytest
import requests
from waiting import wait_until


@pytest.fixture
def began(tmp_path):
    return tmp_path / "began"


@pytest.fixture
def ended(tmp_path):
    return tmp_path / "ended"


def running(server, how, began, ended="", **options):
    """An async prediction that has reached user code."""
    hook = options.pop("hook")
    server.start(
        {"how": how, "began": str(began), "ended": str(ended)},
        webhook=hook,
        webhook_events_filter=["completed"],
        **options,
    )
    wait_until(began.exists, "user code to begin")


def test_cpu_loop(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    running(server, "loop", began, id="loop", hook=receiver.url + hook)
    reply = server.cancel("loop")
    assert (reply.status, reply.json) == (200, {})
    body = receiver.wait_terminal(hook, 5)
    assert body["status"] == "canceled"
    assert "output" not in body and "error" not in body


def test_blocking_sleep(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    running(server, "sleep", began, id="sleep", hook=receiver.url + hook)
    start = time.monotonic()
    server.cancel("sleep")
    assert receiver.wait_terminal(hook)["status"] == "canceled"
    # Deliberate difference: Cog waits for the sleep to end; tidegate interrupts it.
    assert server.is_cog or time.monotonic() - start < 2.5


def test_cancel_is_idempotent_while_in_flight(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    if server.is_cog:
        running(server, "sleep", began, id="two", hook=receiver.url + hook)
        assert [server.cancel("two").status, server.cancel("two").status] == [200, 200]
    else:
        # Deliberate difference: tidegate ends the job at once, so the second cancel may find it ended.
        running(server, "sleep", began, id="two", hook=receiver.url + hook)
        assert server.cancel("two").status == 200
        assert server.cancel("two").status in (200, 404)
    assert receiver.wait_terminal(hook)["status"] == "canceled"


def test_swallowing_is_still_canceled(serve, receiver, began, ended):
    server, hook = serve("cancel"), receiver.path()
    running(server, "swallow", began, ended, id="swallow", hook=receiver.url + hook)
    server.cancel("swallow")
    body = receiver.wait_terminal(hook)
    assert (body["status"], ended.read_text()) == ("canceled", "swallowed")


def test_a_cancel_is_not_an_exception_and_cleanup_runs(serve, receiver, began, ended):
    server, hook = serve("cancel"), receiver.path()
    running(server, "shielded", began, ended, id="shielded", hook=receiver.url + hook)
    server.cancel("shielded")
    body = receiver.wait_terminal(hook)
    assert (body["status"], ended.read_text()) == ("canceled", "finally")
    assert (body["logs"], body["metrics"]["cleaned"]) == ("cleaned up\n", True)


def test_generated_ids_can_be_canceled(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    id = server.start({"how": "loop", "began": str(began)}, webhook=receiver.url + hook).json["id"]
    wait_until(began.exists, "user code to begin")
    assert server.cancel(id).status == 200
    assert receiver.wait_terminal(hook)["status"] == "canceled"


def test_a_training_path_cancels_too(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    running(server, "loop", began, id="tr", hook=receiver.url + hook, path="/trainings")
    assert server.cancel("tr", path="/trainings").status == 200
    assert receiver.wait_terminal(hook)["status"] == "canceled"


def test_a_stale_cancel_has_no_effect(serve):
    server = serve("cancel")
    server.predict({"how": "quick"}, id="first")
    server.wait_idle()
    assert server.cancel("first").status == 404
    assert server.predict({"how": "quick"}).json["status"] == "succeeded"


def test_the_next_prediction_is_not_canceled(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    running(server, "loop", began, id="doomed", hook=receiver.url + hook)
    server.cancel("doomed")
    receiver.wait_terminal(hook)
    assert server.predict({"how": "quick"}).json["output"] == "done"


def test_async(serve, receiver, gate, ended):
    server, hook = serve("concurrent"), receiver.path()
    server.start({"gate": str(gate), "cleanup": str(ended)}, id="async", webhook=receiver.url + hook)
    wait_until(lambda: server.snapshot("async")["logs"], "user code to begin")
    assert server.cancel("async").status == 200
    assert receiver.wait_terminal(hook)["status"] == "canceled"
    wait_until(ended.exists, "the cleanup of the coroutine")


def test_a_dropped_sync_connection_cancels(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    body = {"input": {"how": "loop", "began": str(began)}, "webhook": receiver.url + hook}
    server.wait_idle()
    with pytest.raises(requests.ReadTimeout):
        requests.post(f"{server.url}/predictions", json=body, timeout=0.5)
    assert began.exists()
    assert receiver.wait_terminal(hook)["status"] == "canceled"


def test_a_dropped_sync_put_cancels(serve, receiver, began):
    server, hook = serve("cancel"), receiver.path()
    body = {"input": {"how": "loop", "began": str(began)}, "webhook": receiver.url + hook}
    server.wait_idle()
    with pytest.raises(requests.ReadTimeout):
        requests.put(f"{server.url}/predictions/dropped", json=body, timeout=0.5)
    assert receiver.wait_terminal(hook)["status"] == "canceled"

"""spec/cog.md §1, order of checks on create: which of two faults is reported."""

import pytest
from waiting import wait_until

BUSY = {"error": "At capacity - all prediction slots busy", "status": "failed"}
NOT_READY = {
    "error": "Setup has not finished yet. Wait until it has finished, or GET /health-check for status.",
    "status": "failed",
}
INVALID = {"input": {"limit": 99}}


@pytest.fixture
def busy(serve, gate):
    """A server whose only slot is taken by the prediction `holder`."""
    server = serve("echo")
    server.start({"gate": str(gate)}, id="holder")
    return server


@pytest.fixture
def starting(serve_fresh, gate):
    return serve_fresh("setup_slow", env={"SETUP_GATE": str(gate)}, until=("STARTING",))


def test_no_free_slot(busy):
    reply = busy.post("/predictions", {"input": {}})
    assert (reply.status, reply.json) == (409, BUSY)


def test_no_free_slot_for_another_put(busy):
    reply = busy.put("/predictions/another", {"input": {}})
    assert (reply.status, reply.json) == (409, BUSY)


def test_invalid_input_before_no_free_slot(busy):
    assert busy.post("/predictions", INVALID).status == 422


def test_id_mismatch_before_in_flight(busy):
    assert busy.put("/predictions/holder", {"id": "other", "input": {}}).status == 422


def test_in_flight_before_validation(busy):
    assert busy.put("/predictions/holder", INVALID).status == 202


def test_not_acceptable_before_validation(busy):
    assert busy.post("/predictions", INVALID, headers={"Accept": "text/event-stream"}).status == 406


def test_not_ready(starting):
    reply = starting.post("/predictions", {"input": {}})
    assert (reply.status, reply.json) == (503, NOT_READY)


def test_the_schema_while_starting(starting):
    if starting.is_cog:
        reply = starting.get("/openapi.json")
        assert (reply.status, reply.json) == (503, {"error": "OpenAPI schema not available"})
    else:
        # Deliberate difference: the schema is known as soon as the code has been read.
        wait_until(lambda: starting.get("/openapi.json").status == 200, "the schema")
        assert starting.health()["status"] == "STARTING"


def test_not_acceptable_while_starting(starting):
    assert starting.post("/predictions", {"input": {}}, headers={"Accept": "text/event-stream"}).status == 406


def test_ready_after_starting(starting, gate):
    gate.open()
    starting.wait_idle()
    assert starting.predict({"text": "now"}).json["output"] == "now"

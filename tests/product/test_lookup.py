"""Results can be looked up, and a PUT is idempotent after the end too."""

from waiting import wait_until


def test_get_while_running(shared_server, gate):
    server = shared_server("generator")
    server.start({"gate": str(gate), "hold_at": 1, "log": "line"}, id="look")
    wait_until(lambda: server.get("/predictions/look").json.get("output"), "the first chunk")
    reply = server.get("/predictions/look")
    body = reply.json
    assert reply.status == 200
    assert (body["id"], body["status"], body["output"], body["logs"]) == (
        "look",
        "processing",
        ["chunk0"],
        "line\n",
    )


def test_get_after_the_end(shared_server):
    server = shared_server("echo")
    created = server.predict({"text": "kept"}, id="done").json
    reply = server.get("/predictions/done")
    assert reply.status == 200
    assert created.items() <= reply.json.items()


def test_get_of_an_async_job(shared_server):
    server = shared_server("echo")
    id = server.start({"text": "kept"}).json["id"]
    wait_until(lambda: server.get(f"/predictions/{id}").json["status"] == "succeeded", "the job to end")
    assert server.get(f"/predictions/{id}").json["output"] == "kept"


def test_get_of_a_failure(shared_server):
    server = shared_server("echo")
    server.predict({"fail": "x"}, id="done-failed")
    body = server.get("/predictions/done-failed").json
    assert (body["status"], body["error"]) == (
        "failed",
        "Prediction failed: ValueError: x",
    )


def test_get_of_an_unknown_id_is_404(shared_server):
    assert shared_server("echo").get("/predictions/never-was").status == 404


def test_get_masks_secrets(shared_server):
    server = shared_server("files_in")
    server.predict({"secret": "hunter2", "forgotten": True}, id="masked")
    reply = server.get("/predictions/masked")
    assert reply.status == 200
    assert "hunter2" not in reply.body.decode()


def test_put_after_the_end_returns_the_stored_result(shared_server):
    server = shared_server("runner")
    first = server.put("/predictions/replayed", {"input": {"text": "a"}})
    second = server.put("/predictions/replayed", {"input": {"text": "a"}})
    assert (second.status, second.json["output"]) == (200, first.json["output"])


def test_put_with_other_input_is_a_conflict(shared_server):
    server = shared_server("runner")
    server.put("/predictions/conflict", {"input": {"text": "a"}})
    assert server.put("/predictions/conflict", {"input": {"text": "b"}}).status == 409


def test_put_replays_a_failure_too(shared_server):
    server = shared_server("echo")
    body = {"input": {"fail": "once"}}
    first = server.put("/predictions/replayed-failure", body).json
    assert server.put("/predictions/replayed-failure", body).json["error"] == first["error"]


def test_the_order_of_keys_does_not_matter(shared_server):
    server = shared_server("runner")
    first = server.put("/predictions/key-order", {"input": {"text": "a", "times": 3}}).json
    second = server.put("/predictions/key-order", {"input": {"times": 3, "text": "a"}}).json
    assert second["output"] == first["output"]  # the same `calls`: it did not run again

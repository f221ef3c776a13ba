"""spec/cog.md §1, PUT idempotency."""

from waiting import wait_until


def test_repeated_put_answers_a_snapshot(serve, gate):
    server = serve("echo")
    server.wait_idle()
    body = {"input": {"gate": str(gate), "log": "line", "unknown": 1}}
    first = server.put("/predictions/again", body, headers={"Prefer": "respond-async"})
    assert (first.status, first.json) == (202, {"id": "again", "status": "starting"})
    wait_until(lambda: "line" in server.snapshot("again")["logs"], "the log line")

    reply = server.put("/predictions/again", {"input": {"text": "other"}})

    assert reply.status == 202
    assert reply.json == {
        "id": "again",
        "input": {"gate": str(gate), "log": "line"},
        "logs": ("" if server.is_cog else "Warning: unknown input `unknown` was ignored\n") + "line\n",
        "metrics": {},
        "status": "processing",
    }


def test_snapshot_of_a_generator_has_the_output_so_far(serve, gate):
    server = serve("generator")
    server.wait_idle()
    server.start({"gate": str(gate), "hold_at": 2}, id="partial")
    wait_until(lambda: len(server.snapshot("partial").get("output", [])) == 2, "two chunks")
    assert server.snapshot("partial")["output"] == ["chunk0", "chunk1"]


def test_put_of_a_running_post(serve, gate):
    server = serve("echo")
    server.start({"gate": str(gate)}, id="posted")
    assert server.put("/predictions/posted", {"input": {}}).status == 202


def test_sync_put_creates(serve):
    server = serve("echo")
    server.wait_idle()
    reply = server.put("/predictions/fresh-put", {"input": {"text": "a"}})
    assert (reply.status, reply.json["output"], reply.json["id"]) == (200, "a", "fresh-put")


def test_put_after_the_end(serve):
    server = serve("runner")
    server.wait_idle()
    first = server.put("/predictions/ended", {"input": {"text": "a"}}).json
    server.wait_idle()
    second = server.put("/predictions/ended", {"input": {"text": "a"}}).json
    # Deliberate difference: Cog forgets the id and runs again; tidegate replays the stored result.
    again = first["output"]["calls"] + 1 if server.is_cog else first["output"]["calls"]
    assert second["output"]["calls"] == again


def test_secrets_in_snapshots(serve, gate):
    server = serve("files_in")
    server.start({"secret": "hunter2", "gate": str(gate)}, id="secretive")
    snapshot = server.snapshot("secretive")
    # Deliberate difference: Cog gives the secret back in clear.
    assert (snapshot["input"]["secret"] == "hunter2") == server.is_cog


def test_post_with_a_running_id(serve, gate):
    server = serve("echo")
    server.start({"gate": str(gate)}, id="twice")
    assert server.post("/predictions", {"id": "twice", "input": {}}).status == 409


def test_training_put_is_idempotent(serve, gate):
    server = serve("echo")
    server.wait_idle()
    body = {"input": {"gate": str(gate)}}
    first = server.put("/trainings/tr", body, headers={"Prefer": "respond-async"})
    second = server.put("/trainings/tr", body)
    assert (first.status, second.status, second.json["id"]) == (202, 202, "tr")

"""Durable predictions: none is lost and none runs twice."""

import asyncio

from waiting import wait_until


def ended(served, ids):
    def probe():
        seen = {one["id"]: one["status"] for one in map(served.show, ids)}
        return seen if all(status == "succeeded" for status in seen.values()) else None

    return wait_until(probe, "the end of all", timeout=40)


def test_a_hundred_predictions_run_exactly_once(serve_model):
    journal = serve_model("journal")
    nonces = [f"n{n}" for n in range(100)]

    async def all_at_once():
        version = journal.version
        create = journal.python.predictions.async_create
        made = await asyncio.gather(*(create(version=version, input={"nonce": nonce}) for nonce in nonces))
        # At once, because each wait begins with a pause of half a second.
        await asyncio.gather(*(prediction.async_wait() for prediction in made))
        return made

    made = asyncio.run(all_at_once())
    assert [(one.status, one.output) for one in made] == [("succeeded", nonce) for nonce in nonces]
    assert len({one.id for one in made}) == 100
    lines = (journal.server.directory / "journal").read_text().splitlines()
    assert sorted(line for line in lines if line.startswith("ok ")) == sorted(
        f"ok {nonce}" for nonce in nonces
    )


def test_both_clients_find_their_predictions_after_a_kill(serve_model, tmp_path):
    before, gate = serve_model("echo"), tmp_path / "gate"
    version = before.version
    done = before.python.predictions.create(version=version, input={"text": "done"}, wait=5)
    assert done.status == "succeeded"
    running = before.python.predictions.create(version=version, input={"text": "r", "gate": str(gate)})
    wait_until(lambda: before.show(running.id)["status"] == "processing", "the model to begin")
    waiting = before.npm("create", options={"version": version, "input": {"text": "w"}})
    before.kill()
    gate.touch()
    after = serve_model("echo")
    assert after.version == version
    ended(after, [done.id, running.id, waiting["id"]])
    assert after.python.predictions.get(done.id).output == "done"
    assert after.python.predictions.get(running.id).output == "r"
    assert after.npm("wait", id=waiting["id"])["output"] == "w"
    page = after.python.predictions.list()
    assert [one.id for one in page.results] == [waiting["id"], running.id, done.id]
    assert after.npm("all") == [waiting["id"], running.id, done.id]


def test_a_stream_resumes_after_a_kill(serve_model, tmp_path):
    before = serve_model("generator")
    made = before.create({"count": 3}).json
    wait_until(lambda: before.show(made["id"])["status"] == "succeeded", "the end")
    path = made["urls"]["stream"].removeprefix(before.server.url)
    response = before.server.get(path).body.decode()
    before.kill()
    after = serve_model("generator")
    again = after.server.get(path).body.decode()
    assert [line for line in again.splitlines() if line.startswith("data")] == [
        line for line in response.splitlines() if line.startswith("data")
    ]
    last = next(line for line in response.splitlines() if line.startswith("id") and ":2." in line)
    rest = after.server.get(path, headers={"Last-Event-ID": last.removeprefix("id: ")}).body.decode()
    assert "chunk2" in rest
    assert "chunk1" not in rest


def test_a_webhook_after_a_kill_equals_the_response_to_a_get(serve_model, receiver, tmp_path):
    before, gate, path = serve_model("echo"), tmp_path / "gate", receiver.path()
    made = before.create(
        {"text": "told", "gate": str(gate)}, webhook=receiver.url + path, webhook_events_filter=["completed"]
    ).json
    wait_until(lambda: before.show(made["id"])["status"] == "processing", "the model to begin")
    before.kill()
    gate.touch()
    after = serve_model("echo")
    response = receiver.wait_terminal(path)
    seen = after.show(made["id"])
    # The caller knew the server by the address that it had then.
    assert response.pop("urls") == made["urls"]
    assert response == {key: value for key, value in seen.items() if key != "urls"}


def test_the_webhook_secret_stays_the_same(serve_model):
    before = serve_model("echo")
    secret = before.npm("secret")["key"]
    before.kill()
    assert serve_model("echo").python.webhooks.default.secret().key == secret


def test_predictions_are_validated_and_accepted_while_the_model_loads(serve_model, tmp_path):
    gate = tmp_path / "gate"
    slow = serve_model("setup_slow", env={"SETUP_GATE": str(gate)}, until=())
    wait_until(lambda: reached(slow), "the server")
    early = slow.python.models.predictions.create(slow.model, input={"text": "early"})
    assert early.status == "starting"
    assert slow.npm("create", options={"version": slow.version, "input": {}})["status"] == "starting"
    assert slow.create({"text": 1}).status == 422
    assert slow.get("/health-check").json["status"] == "STARTING"
    assert slow.get("/openapi.json").status == 200
    gate.touch()
    ended(slow, [one.id for one in slow.python.predictions.list()])
    assert slow.python.predictions.get(early.id).output == "early"


def test_predictions_accepted_while_the_model_loads_survive_a_kill(serve_model, tmp_path):
    gate = tmp_path / "gate"
    before = serve_model("setup_slow", env={"SETUP_GATE": str(gate)}, until=())
    wait_until(lambda: reached(before), "the server")
    early = before.create({"text": "early"}).json
    before.kill()
    gate.touch()
    ended(serve_model("setup_slow", env={"SETUP_GATE": str(gate)}), [early["id"]])


def test_accepted_predictions_wait_until_a_server_can_load_the_model(serve_model, tmp_path):
    gate = tmp_path / "gate"
    env = {"SETUP_GATE": str(gate)}
    broken = serve_model("setup_slow", env=env | {"SETUP_FAILS": "1"}, until=())
    wait_until(lambda: reached(broken), "the server")
    early = broken.create({"text": "early"}).json
    gate.touch()
    broken.server.wait_health("SETUP_FAILED")
    assert broken.create({}).status == 503
    assert broken.show(early["id"])["status"] == "starting"
    broken.kill()
    ended(serve_model("setup_slow", env=env), [early["id"]])


def test_a_model_that_cannot_be_loaded_refuses_predictions_at_once(serve_model):
    broken = serve_model("setup_fails")
    reply = broken.create({})
    assert (reply.status, reply.headers["retry-after"]) == (503, "1"), str(reply)
    assert "setup failed" in reply.json["detail"]


def reached(served):
    try:
        return served.get("/health-check").status == 200
    except OSError:
        return False

"""Webhooks of the Replicate API: frequency, content, and delivery after a restart."""

from waiting import wait_until

EVERYTHING = ["start", "output", "logs", "completed"]


def test_many_values_are_combined_into_few_webhooks(serve_model, receiver):
    generator, path = serve_model("generator"), receiver.path()
    generator.create(
        {"count": 300, "log": "one"}, webhook=receiver.url + path, webhook_events_filter=EVERYTHING
    )
    last = receiver.wait_terminal(path)
    assert len(last["output"]) == 300
    bodies = [one.json for one in receiver.received(path)]
    # The start, what came first, the end, and one for each half second in which the model was at work.
    assert bodies[0]["output"] is None
    assert 3 <= len(bodies) < 20
    counts = [len(body["output"] or []) for body in bodies]
    assert counts == sorted(counts)


def test_throttled_webhooks_are_sent_later(serve_model, receiver, tmp_path):
    generator, path, gate = serve_model("generator"), receiver.path(), tmp_path / "gate"
    generator.create({"count": 4, "hold_at": 3, "gate": str(gate)}, webhook=receiver.url + path)

    def all_sent():
        return any(one.json["output"] == ["chunk0", "chunk1", "chunk2"] for one in receiver.received(path))

    wait_until(all_sent, "the values that came at once")
    gate.touch()
    assert receiver.wait_terminal(path)["status"] == "succeeded"


def test_without_the_completed_event_the_last_value_is_sent(serve_model, receiver):
    generator, path = serve_model("generator"), receiver.path()
    options = {"webhook": receiver.url + path, "webhook_events_filter": ["output"]}
    made = generator.create({"count": 3}, **options).json
    wait_until(lambda: generator.show(made["id"])["status"] == "succeeded", "the end")
    wait_until(
        lambda: receiver.received(path) and len(receiver.received(path)[-1].json["output"]) == 3,
        "the last value",
    )


def test_a_single_output_is_never_a_list(serve_model, receiver):
    echo, path = serve_model("echo"), receiver.path()
    made = echo.create({"text": "a"}, webhook=receiver.url + path).json
    assert receiver.wait_terminal(path)["output"] == "a"
    assert {one.json["output"] for one in receiver.received(path)} == {"a"}
    assert echo.show(made["id"])["output"] == "a"


def test_a_prediction_shows_its_webhook(serve_model, receiver):
    echo, path = serve_model("echo"), receiver.path()
    made = echo.create({}, webhook=receiver.url + path).json
    assert (made["webhook"], made["webhook_events_filter"]) == (receiver.url + path, ["output", "completed"])
    chosen = echo.create({}, webhook=receiver.url + path, webhook_events_filter=["logs", "start"]).json
    assert chosen["webhook_events_filter"] == ["start", "logs"]
    old = echo.create({}, webhook_completed=receiver.url + path).json
    assert (old["webhook"], old["webhook_events_filter"]) == (receiver.url + path, ["completed"])
    assert "webhook" not in echo.create({}).json
    assert echo.npm("get", id=made["id"])["webhook"] == receiver.url + path
    assert echo.python.predictions.get(made["id"]).id == made["id"]


def test_the_webhook_body_is_the_same_after_a_kill(serve_model, receiver, tmp_path):
    before, path, gate = serve_model("generator"), receiver.path(), tmp_path / "gate"
    made = before.create(
        {"count": 2, "gate": str(gate)}, webhook=receiver.url + path, webhook_events_filter=["completed"]
    ).json
    wait_until(lambda: before.show(made["id"])["status"] == "processing", "the model to begin")
    before.kill()
    gate.touch()
    after = serve_model("generator")
    response = receiver.wait_terminal(path)
    assert response["urls"] == made["urls"]
    assert response["urls"]["stream"]
    assert (response["webhook"], response["webhook_events_filter"]) == (made["webhook"], ["completed"])
    seen = after.show(made["id"])
    assert {**response, "urls": None} == {**seen, "urls": None}

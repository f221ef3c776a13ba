"""spec/cog.md §14: trainings."""

import pytest


def test_training_is_validated_against_its_own_input(compare):
    reply = compare("training", lambda server: server.post("/trainings", {"input": {"epochs": 99}}))
    assert reply.status == 422
    assert {error["loc"][2] for error in reply.detail} == {"data", "epochs"}


def test_trainings_run_next_to_predictions(serve):
    server = serve("training")
    body = server.predict({"data": "d", "epochs": 2}, path="/trainings").json
    if server.is_cog:
        # Deliberate difference: in predict mode Cog calls predict() with the inputs of train().
        assert body["status"] == "failed"
        assert "unexpected keyword argument" in body["error"]
    else:
        assert (body["status"], body["output"]) == ("succeeded", {"weights": "d.bin", "epochs": 2})
        assert body["logs"] == "training on d\n"


def test_predictions_run_next_to_trainings(serve):
    assert serve("training").predict({"text": "a"}).json["output"] == "a"


def test_without_train_a_training_is_a_prediction(compare):
    reply = compare("echo", lambda server: server.predict({"text": "a"}, path="/trainings"))
    assert reply.json["output"] == "a"


@pytest.fixture
def trainer(serve_fresh):
    """Cog in train mode; tidegate needs no mode."""
    return lambda kind: serve_fresh("training", flags=("--x-mode", "train") if kind == "cog" else ())


def test_training_succeeds(trainer, kind):
    body = trainer(kind).predict({"data": "d"}, path="/trainings", id="t").json
    assert body["metrics"].pop("predict_time") > 0
    assert body == {
        "id": "t",
        "logs": "training on d\n",
        "metrics": {},
        "output": {"epochs": 3, "weights": "d.bin"},
        "status": "succeeded",
    }


def test_training_fails(trainer, kind):
    server = trainer(kind)
    body = server.predict({"data": "d", "fail": True}, path="/trainings").json
    # Deliberate difference: Cog says it twice.
    again = "Prediction failed: " if server.is_cog else ""
    assert (body["status"], body["error"]) == (
        "failed",
        f"{again}Training failed: ValueError: no convergence",
    )


def test_async_training(trainer, kind, receiver):
    hook = receiver.path()
    server = trainer(kind)
    reply = server.put(
        "/trainings/t1",
        {"input": {"data": "d"}, "webhook": receiver.url + hook},
        headers={"Prefer": "respond-async"},
    )
    assert (reply.status, reply.json) == (202, {"id": "t1", "status": "starting"})
    assert receiver.wait_terminal(hook)["output"]["weights"] == "d.bin"

"""Trainings, with both clients."""

import pytest
from clients import NpmError, ServedModel
from replicate.exceptions import ReplicateError
from waiting import wait_until


def test_with_pythons_client(serve_model):
    training = serve_model("training")
    made = training.python.trainings.create(
        model=training.model,
        version=training.version,
        input={"data": "set", "epochs": 2},
        destination=training.model,
    )

    def over():
        made.reload()
        return made.status == "succeeded"

    wait_until(over, "the end")
    version = made.output.pop("version")
    assert version.startswith(f"{training.model}:")
    assert made.output == {"weights": "set.bin", "epochs": 2}
    assert made.urls["get"].endswith(f"/v1/trainings/{made.id}")
    assert [one.id for one in training.python.trainings.list().results] == [made.id]
    assert training.python.predictions.list().results == []
    made.cancel()
    assert made.status == "succeeded"


def test_with_npms_client(serve_model):
    training = serve_model("training")
    options = {"destination": training.model, "input": {"data": "x", "fail": True}}
    arguments = {"owner": training.owner, "name": training.name, "version": training.version}
    made = training.npm("train", **arguments, options=options)

    def over():
        seen = training.npm("training", id=made["id"])
        return seen if seen["status"] == "failed" else None

    assert "no convergence" in wait_until(over, "the end")["error"]
    assert [one["id"] for one in training.npm("trainings")["results"]] == [made["id"]]
    with pytest.raises(NpmError) as raised:
        training.npm("get", id=made["id"])
    assert raised.value.status == 404


def test_a_training_for_a_created_model(serve_model):
    tokens = {"TIDEGATE_API_TOKENS": "a:ann,b:bob"}
    ann = serve_model("training", env=tokens, token="a")
    bob = ServedModel(ann.server, "training", "b")
    ann.python.models.create("ann", "tuned", visibility="public", hardware="local")

    def train(served):
        return served.python.trainings.create(
            model=served.model,
            version=served.version,
            input={"data": "set"},
            destination="ann/tuned",
        )

    made = train(ann)

    def over():
        made.reload()
        return made.status == "succeeded"

    wait_until(over, "the end")
    assert made.output["weights"] == "set.bin"
    latest = ann.python.models.get("ann/tuned").latest_version
    assert made.output["version"] == f"ann/tuned:{latest.id}"
    with pytest.raises(ReplicateError) as raised:
        train(bob)
    assert raised.value.detail == "The specified training destination does not exist"


def test_invalid_trainings_are_refused(serve_model):
    training, echo = serve_model("training"), serve_model("echo", env={"TIDEGATE_DATA_DIR": "none"})

    def refusal(served, destination, **input):
        with pytest.raises(ReplicateError) as raised:
            served.python.trainings.create(
                model=served.model, version=served.version, input=input, destination=destination
            )
        return raised.value.status, raised.value.detail

    unknown = (404, "The specified training destination does not exist")
    assert refusal(training, "local/other", data="x") == unknown
    assert refusal(training, training.model) == (422, "- input: data is required\n")
    assert refusal(echo, echo.model) == (422, "The model has no training function.")

"""Deployments, with both clients."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from clients import NpmError, ServedModel
from replicate.exceptions import ReplicateError
from waiting import wait_until

TOKENS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}


def wishes(served, name="app", **other):
    usual = {"model": served.model, "version": served.version, "hardware": "local"}
    return usual | {"name": name, "min_instances": 0, "max_instances": 1} | other


def patch(served, path, body):
    return served.server.request("PATCH", path, json=body, headers=served.headers)


def test_with_pythons_client(serve_model):
    echo = serve_model("echo", env=TOKENS, token="secret-a")
    deployments = echo.python.deployments
    made = deployments.create(**wishes(echo))
    assert (made.owner, made.name, made.id) == ("ann", "app", "ann/app")
    release = made.current_release
    assert (release.number, release.model, release.version) == (1, echo.model, echo.version)
    assert (release.created_by.type, release.created_by.username) == ("user", "ann")
    assert release.configuration.dict() == {"hardware": "local", "min_instances": 0, "max_instances": 1}

    changed = deployments.update("ann", "app", min_instances=1, max_instances=3)
    assert changed.current_release.number == 2
    assert changed.current_release.configuration.max_instances == 3
    assert changed.current_release.version == echo.version
    again = deployments.update("ann", "app", max_instances=3)
    assert again.current_release == changed.current_release, "nothing has changed"

    deployments.create(**wishes(echo, "other"))
    assert [one.id for one in deployments.list()] == ["ann/other", "ann/app"]
    prediction = deployments.predictions.create("ann/app", input={"text": "through"}, wait=10)
    assert (prediction.status, prediction.output) == ("succeeded", "through")
    assert echo.show(prediction.id)["deployment"] == "ann/app"
    through = deployments.get("ann/app").predictions.create({"text": "the object"})
    through.wait()
    assert through.output == "the object"
    made = echo.python.predictions.create(deployment="ann/app", input={"text": "by name"})
    made.wait()
    assert made.output == "by name"

    assert deployments.delete("ann", "app") is True
    with pytest.raises(ReplicateError) as raised:
        deployments.get("ann/app")
    assert raised.value.status == 404
    assert not {"deployment", "deployment_release"} & echo.create({}).json.keys()


def test_with_pythons_async_client(serve_model):
    echo = serve_model("echo")
    deployments = echo.python.deployments

    async def all_of_it():
        made = await deployments.async_create(**wishes(echo))
        changed = await deployments.async_update(made.owner, made.name, max_instances=2)
        prediction = await deployments.predictions.async_create(made, input={"text": "x"}, wait=10)
        page = await deployments.async_list()
        seen = await deployments.async_get(made.id)
        assert await deployments.async_delete(made.owner, made.name)
        return changed, prediction, page, seen

    changed, prediction, page, seen = asyncio.run(all_of_it())
    assert changed.current_release.number == 2
    assert prediction.output == "x"
    assert [one.id for one in page] == [seen.id] == ["anonymous/app"]


def test_with_npms_client(serve_model):
    echo = serve_model("echo", env=TOKENS, token="secret-a")
    made = echo.npm("deploy", options=wishes(echo))
    named = {"owner": "ann", "name": "app"}
    assert echo.npm("deployment", **named) == made
    changed = echo.npm("redeploy", **named, options={"min_instances": 1})
    assert changed["current_release"]["number"] == 2
    assert echo.npm("deployments")["results"] == [changed]
    prediction = echo.npm("create_deployed", **named, options={"input": {"text": "x"}, "wait": True})
    assert (prediction["output"], prediction["deployment"]) == ("x", "ann/app")
    assert echo.npm("undeploy", **named) is True
    with pytest.raises(NpmError) as raised:
        echo.npm("create_deployed", **named, options={"input": {}})
    assert raised.value.status == 404


def test_a_deployment_of_another_account_does_not_exist(serve_model):
    ann = serve_model("echo", env=TOKENS, token="secret-a")
    bob = ServedModel(ann.server, "echo", "secret-b")
    ann.python.deployments.create(**wishes(ann))
    path = "/v1/deployments/ann/app"
    for method, body in [("GET", None), ("PATCH", {"max_instances": 2}), ("DELETE", None)]:
        assert bob.server.request(method, path, json=body, headers=bob.headers).status == 404, method
    assert bob.server.post(f"{path}/predictions", {"input": {}}, headers=bob.headers).status == 404
    assert bob.python.deployments.list().results == []
    # And its name is free.
    assert bob.python.deployments.create(**wishes(bob)).id == "bob/app"
    assert bob.get(path).status == 404
    assert ann.get(path).json["current_release"]["number"] == 1


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"version": None, "hardware": None}, "- version is required\n- hardware is required\n"),
        ({"name": "Not a name"}, "- name: use 1 to 64 lower-case letters"),
        ({"model": "local/other"}, "- model: there is no model `local/other`\n"),
        ({"version": "0" * 64}, "The specified version does not exist"),
        ({"hardware": "gpu-t4"}, "- hardware: hardware must be one of the following: local\n"),
        ({"min_instances": 2}, "- min_instances: min_instances must not be above max_instances\n"),
        ({"max_instances": 0}, "- max_instances: max_instances must be from 1 to 1000\n"),
        ({"max_instances": "many"}, "- max_instances: invalid type: string"),
    ],
)
def test_invalid_deployments_are_refused(serve_model, body, detail):
    echo = serve_model("echo")
    reply = echo.server.post("/v1/deployments", wishes(echo) | body)
    assert (reply.status, reply.content_type) == (422, "application/problem+json"), str(reply)
    assert reply.json["detail"].startswith(detail), str(reply)
    assert echo.get("/v1/deployments").json["results"] == []


def test_deployment_names_are_unique(serve_model):
    echo = serve_model("echo")
    echo.python.deployments.create(**wishes(echo))
    reply = echo.server.post("/v1/deployments", wishes(echo, max_instances=5))
    assert (reply.status, reply.content_type) == (409, "application/problem+json")
    assert "`app`" in reply.json["detail"]
    assert echo.get("/v1/deployments/anonymous/app").json["current_release"]["number"] == 1


def test_an_invalid_change_changes_nothing(serve_model):
    echo = serve_model("echo")
    path = "/v1/deployments/anonymous/app"
    echo.python.deployments.create(**wishes(echo))
    assert patch(echo, path, {"version": "0" * 64}).status == 422
    assert patch(echo, path, {"min_instances": 9}).status == 422
    assert echo.get(path).json["current_release"]["number"] == 1
    assert patch(echo, "/v1/deployments/anonymous/none", {"max_instances": 2}).status == 404


def test_concurrent_changes_are_not_lost(serve_model):
    echo = serve_model("echo")
    echo.python.deployments.create(**wishes(echo, max_instances=1000))

    def change(minimum):
        sibling = ServedModel(echo.server.sibling(), "echo")
        return patch(sibling, "/v1/deployments/anonymous/app", {"min_instances": minimum})

    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(change, range(1, 41)))
    numbers = sorted(reply.json["current_release"]["number"] for reply in replies)
    assert numbers == list(range(2, 42))


def test_a_deployment_in_use_cannot_be_deleted(serve_model, tmp_path):
    echo, gate = serve_model("echo"), tmp_path / "gate"
    echo.python.deployments.create(**wishes(echo))
    made = echo.python.deployments.predictions.create("anonymous/app", input={"gate": str(gate)})
    reply = echo.server.request("DELETE", "/v1/deployments/anonymous/app")
    assert (reply.status, reply.content_type) == (409, "application/problem+json"), str(reply)
    made.cancel()
    assert echo.python.deployments.delete("anonymous", "app")
    assert echo.show(made.id)["deployment"] == "anonymous/app"


def test_deployments_and_their_predictions_survive_a_kill(serve_model, tmp_path):
    before, gate = serve_model("echo"), tmp_path / "gate"
    before.python.deployments.create(**wishes(before))
    before.python.deployments.update("anonymous", "app", max_instances=4)
    running = before.python.deployments.predictions.create(
        "anonymous/app", input={"text": "r", "gate": str(gate)}
    )
    wait_until(lambda: before.show(running.id)["status"] == "processing", "the model to begin")
    known = before.get("/v1/deployments").json
    before.kill()
    gate.touch()
    after = serve_model("echo")
    assert after.get("/v1/deployments").json == known
    wait_until(lambda: after.show(running.id)["status"] == "succeeded", "the end")
    assert after.show(running.id)["deployment"] == "anonymous/app"
    assert after.python.deployments.update("anonymous", "app", max_instances=5).current_release.number == 3


def test_a_prediction_keeps_its_release_after_later_ones(serve_model):
    before = serve_model("echo", env=TOKENS, token="secret-a")
    deployments = before.python.deployments
    deployments.create(**wishes(before))
    made = [deployments.predictions.create("ann/app", input={"text": "1"}, wait=10)]
    for most in (2, 3):
        deployments.update("ann", "app", max_instances=most)
        made.append(deployments.predictions.create("ann/app", input={"text": str(most)}, wait=10))
    releases = before.get("/v1/deployments/ann/app/releases").json
    assert [one["number"] for one in releases["results"]] == [3, 2, 1]
    assert [one["configuration"]["max_instances"] for one in releases["results"]] == [3, 2, 1]
    assert {one["created_by"]["username"] for one in releases["results"]} == {"ann"}
    moments = [one["created_at"] for one in releases["results"]]
    assert len(set(moments)) == 3 and releases["next"] is None
    assert before.get("/v1/deployments/ann/app").json["current_release"] == releases["results"][0]
    assert [before.show(one.id)["deployment_release"] for one in made] == [1, 2, 3]

    before.kill()
    after = serve_model("echo", env=TOKENS, token="secret-a")
    assert after.get("/v1/deployments/ann/app/releases").json["results"] == releases["results"]
    assert [after.show(one.id)["deployment_release"] for one in made] == [1, 2, 3]
    assert {after.show(one.id)["deployment"] for one in made} == {"ann/app"}
    other = after.server.get("/v1/deployments/ann/app/releases", headers={"Authorization": "Bearer secret-b"})
    assert other.status == 404


def test_a_version_that_is_no_longer_served_is_refused(serve_model):
    before = serve_model("echo")
    before.python.deployments.create(**wishes(before))
    before.kill()
    after = serve_model("echo", "--owner", "other")
    with pytest.raises(ReplicateError) as raised:
        after.python.deployments.predictions.create("anonymous/app", input={})
    assert raised.value.status == 422
    assert after.python.deployments.delete("anonymous", "app")


def test_without_a_data_folder_deployments_end_with_the_server(serve_model):
    echo = serve_model("echo", env={"TIDEGATE_DATA_DIR": "none"})
    echo.python.deployments.create(**wishes(echo))
    prediction = echo.python.deployments.predictions.create("anonymous/app", input={"text": "m"}, wait=10)
    assert prediction.output == "m"
    assert echo.python.deployments.update("anonymous", "app", max_instances=2).current_release.number == 2


def test_deployments_are_paginated(serve_model):
    echo = serve_model("echo")
    body = wishes(echo)
    for number in range(101):
        assert echo.server.post("/v1/deployments", body | {"name": f"n{number}"}).status == 201
    page = echo.python.deployments.list()
    assert len(page) == 100
    rest = echo.python.deployments.list(page.next)
    assert [one.name for one in rest] == ["n0"]
    assert rest.next is None


@pytest.mark.timeout(180)
def test_the_number_of_deployments_is_limited(serve_model):
    echo = serve_model("echo", env={"TIDEGATE_DATA_DIR": "none"})
    body = wishes(echo)
    statuses = [
        echo.server.post("/v1/deployments", body | {"name": f"n{number}"}).status for number in range(1001)
    ]
    assert statuses == [201] * 1000 + [409]
    assert echo.python.deployments.delete("anonymous", "n7")
    assert echo.server.post("/v1/deployments", body).status == 201
    assert echo.server.post("/v1/deployments", body | {"name": "x" * 300_000}).status == 413

"""A training creates a version of its destination model, which can be run."""

import re
import shutil

import pytest
import requests
from clients import NpmError, ServedModel
from environment import MODELS
from replicate.exceptions import ReplicateError
from waiting import wait_until

MINE = "anonymous/mine"


def make(served, name="mine", visibility="private"):
    owner = served.python.accounts.current().username
    served.python.models.create(owner, name, visibility=visibility, hardware="local")
    return f"{owner}/{name}"


def train(served, destination, word="salve", model=None, version=None, **input):
    made = served.python.trainings.create(
        model=model or served.model,
        version=version or served.version,
        input={"word": word, **input},
        destination=destination,
    )

    def over():
        made.reload()
        return made.status not in ("starting", "processing")

    wait_until(over, "the end of the training")
    assert made.status == "succeeded", made.error
    return made


def said(served, ref, **input):
    return "".join(served.python.run(ref, input={"name": "Ada", **input}))


def refusal(call, *arguments, **options):
    with pytest.raises(ReplicateError) as raised:
        call(*arguments, **options)
    return raised.value.status


def remove(served, path):
    return served.server.request("DELETE", f"/v1/models/{path}", headers=served.headers)


def test_every_way_to_run_a_trained_version_uses_its_weights(serve_model):
    learns = serve_model("learns")
    made = train(learns, make(learns))
    name, _, id = made.output["version"].partition(":")
    assert name == MINE and re.fullmatch("[0-9a-f]{64}", id)
    assert made.output["loss"] == 0.5
    assert requests.get(made.output["weights"], timeout=10).text == "salve"

    mine = learns.python.models.get(MINE)
    assert mine.latest_version.id == id
    assert [one.id for one in mine.versions.list()] == [id]
    assert (
        mine.versions.get(id).openapi_schema
        == learns.python.models.get(learns.model).latest_version.openapi_schema
    )
    assert [one.latest_version.id for one in learns.python.models.list() if one.name == "mine"] == [id]

    answer = "greeting.txt salve Ada"
    assert said(learns, f"{MINE}:{id}") == answer
    assert said(learns, MINE) == answer
    assert said(learns, learns.model) == "hello Ada"
    by_id = learns.python.predictions.create(version=id, input={"name": "Ada"}, wait=20)
    assert ("".join(by_id.output), by_id.model, by_id.version) == (answer, MINE, id)
    streamed = learns.python.stream(MINE, input={"name": "Ada"})
    assert "".join(str(event) for event in streamed) == answer

    learns.python.deployments.create(
        name="app", model=MINE, version=id, hardware="local", min_instances=0, max_instances=1
    )
    deployed = learns.python.deployments.predictions.create("anonymous/app", input={"name": "Ada"}, wait=20)
    assert "".join(deployed.output) == answer


def test_with_npms_client(serve_model):
    learns = serve_model("learns")
    learns.npm(
        "make_model", owner="anonymous", name="mine", options={"visibility": "private", "hardware": "local"}
    )
    made = learns.npm(
        "train",
        owner=learns.owner,
        name=learns.name,
        version=learns.version,
        options={"destination": MINE, "input": {"word": "salve"}},
    )

    def over():
        seen = learns.npm("training", id=made["id"])
        return seen if seen["status"] == "succeeded" else None

    version = wait_until(over, "the end")["output"]["version"]
    id = version.split(":")[1]
    assert learns.npm("model", owner="anonymous", name="mine")["latest_version"]["id"] == id
    assert [one["id"] for one in learns.npm("versions", owner="anonymous", name="mine")["results"]] == [id]
    assert learns.npm("version", owner="anonymous", name="mine", id=id)["id"] == id
    for ref in (version, MINE):
        assert (
            "".join(learns.npm("run", ref=ref, options={"input": {"name": "Ada"}}))
            == "greeting.txt salve Ada"
        )
    with pytest.raises(NpmError) as raised:
        learns.npm("run", ref=f"{MINE}:{'0' * 64}", options={"input": {}})
    assert raised.value.status == 422


def test_the_newest_version_is_the_latest_and_all_versions_run(serve_model):
    learns = serve_model("learns")
    make(learns)
    first, second = (train(learns, MINE, word).output["version"] for word in ("salve", "ave"))
    ids = [name.split(":")[1] for name in (second, first)]
    mine = learns.python.models.get(MINE)
    assert mine.latest_version.id == ids[0]
    assert [one.id for one in mine.versions.list()] == ids
    assert (said(learns, first), said(learns, second)) == ("greeting.txt salve Ada", "greeting.txt ave Ada")
    # The same again is the same version, and the last that was trained.
    assert train(learns, MINE, "salve").output["version"] == first
    mine = learns.python.models.get(MINE)
    assert mine.latest_version.id == ids[1]
    assert sorted(one.id for one in mine.versions.list()) == sorted(ids)
    assert said(learns, MINE) == "greeting.txt salve Ada"


def test_a_version_outlives_the_server_and_its_training(serve_model):
    before = serve_model("learns", "--keep-for", "1s")
    made = train(before, make(before))
    before.kill()
    after = serve_model("learns", "--keep-for", "1s")
    assert after.python.models.get(MINE).latest_version.id == made.output["version"].split(":")[1]
    wait_until(lambda: after.get(f"/v1/trainings/{made.id}").status == 404, "the training to be forgotten")
    address = made.output["weights"].removeprefix(before.server.url)
    wait_until(lambda: after.get(address).status == 404, "its file to go")
    assert said(after, made.output["version"]) == "greeting.txt salve Ada"
    assert after.get("/v1/files").json["results"] == []


def test_waiting_predictions_find_their_version_after_a_kill(serve_model, tmp_path):
    before, gate = serve_model("learns"), tmp_path / "gate"
    make(before)
    versions = [train(before, MINE, word).output["version"] for word in ("salve", "ave")]
    made = [
        before.python.predictions.create(version=version, input={"name": "Ada", "gate": str(gate)})
        for version in versions * 2
    ]
    wait_until(lambda: before.show(made[0].id)["status"] == "processing", "the model to begin")
    before.kill()
    gate.touch()
    after = serve_model("learns")

    def outputs():
        shown = [after.show(one.id) for one in made]
        if all(one["status"] == "succeeded" for one in shown):
            return ["".join(one["output"]) for one in shown]
        return None

    assert wait_until(outputs, "the end of all") == ["greeting.txt salve Ada", "greeting.txt ave Ada"] * 2


def test_a_training_interrupted_by_a_kill_makes_its_version_after_the_restart(serve_model):
    before = serve_model("learns")
    make(before)
    made = before.python.trainings.create(
        model=before.model, version=before.version, input={"word": "salve"}, destination=MINE
    )
    before.kill()
    after = serve_model("learns")

    def over():
        shown = after.get(f"/v1/trainings/{made.id}").json
        return shown if shown["status"] == "succeeded" else None

    version = wait_until(over, "the end of the training")["output"]["version"]
    assert said(after, version) == "greeting.txt salve Ada"
    assert len(after.python.models.get(MINE).versions.list().results) == 1


def test_a_removed_version_is_deleted_with_its_weights(serve_model, tmp_path):
    learns = serve_model("learns", "--keep-for", "1s")
    make(learns)
    first, second = (train(learns, MINE, word).output["version"].split(":")[1] for word in ("salve", "ave"))
    files = tmp_path / "data/files"
    kept = lambda: len([one for one in files.rglob("*") if one.is_file()])  # noqa: E731
    wait_until(lambda: kept() == 2, "the files of the trainings to go")
    assert remove(learns, f"{MINE}/versions/{second}").status == 204
    assert remove(learns, f"{MINE}/versions/{second}").status == 404
    wait_until(lambda: kept() == 1, "the weights to go")
    mine = learns.python.models.get(MINE)
    assert mine.latest_version.id == first
    assert refusal(learns.python.predictions.create, version=second, input={}) == 422
    assert said(learns, MINE) == "greeting.txt salve Ada"

    assert remove(learns, MINE).status == 204
    wait_until(lambda: kept() == 0, "all weights to go")
    assert refusal(learns.python.models.get, MINE) == 404
    assert refusal(learns.python.predictions.create, version=first, input={}) == 422
    learns.kill()
    after = serve_model("learns")
    make(after)
    assert after.python.models.get(MINE).latest_version is None


def test_running_predictions_of_a_removed_version_finish_and_waiting_ones_fail(serve_model, tmp_path):
    learns, gate = serve_model("learns", "--max-loaded", "1"), tmp_path / "gate"
    make(learns)
    versions = [train(learns, MINE, word).output["version"].split(":")[1] for word in ("salve", "ave")]
    begun, waits = (
        learns.python.predictions.create(version=version, input={"name": "Ada", "gate": str(gate)})
        for version in versions
    )
    wait_until(lambda: learns.show(begun.id)["status"] == "processing", "the first to be loaded")
    for version in versions:
        assert remove(learns, f"{MINE}/versions/{version}").status == 204
    gate.touch()

    def ended():
        shown = [learns.show(one.id) for one in (begun, waits)]
        return shown if all(one["completed_at"] for one in shown) else None

    first, second = wait_until(ended, "the end of both")
    assert "".join(first["output"]) == "greeting.txt salve Ada"
    assert second["status"] == "failed"
    assert "could not be started" in second["error"]


def test_predictions_of_a_removed_version_run_on_no_other_version_after_a_kill(serve_model, tmp_path):
    before, gate = serve_model("learns"), tmp_path / "gate"
    make(before)
    version = train(before, MINE).output["version"].split(":")[1]
    made = before.python.predictions.create(version=version, input={"name": "Ada", "gate": str(gate)})
    wait_until(lambda: before.show(made.id)["status"] == "processing", "the model to begin")
    assert remove(before, f"{MINE}/versions/{version}").status == 204
    before.kill()
    gate.touch()
    after = serve_model("learns")
    wait_until(lambda: after.show(made.id)["completed_at"], "the end")
    shown = after.show(made.id)
    assert shown["status"] == "failed" and "no longer served" in shown["error"], shown


def test_a_version_trained_from_a_removed_version_cannot_run(serve_model, tmp_path):
    learns, gate = serve_model("learns"), tmp_path / "gate"
    make(learns)
    first = train(learns, MINE).output["version"].split(":")[1]
    made = learns.python.trainings.create(
        model=MINE, version=first, input={"word": "ave", "gate": str(gate)}, destination=MINE
    )
    wait_until(lambda: learns.get(f"/v1/trainings/{made.id}").json["status"] == "processing", "the training")
    assert remove(learns, f"{MINE}/versions/{first}").status == 204
    gate.touch()
    wait_until(lambda: learns.get(f"/v1/trainings/{made.id}").json["completed_at"], "the end")
    shown = learns.get(f"/v1/trainings/{made.id}").json
    assert shown["status"] == "failed" and "removed in the meantime" in shown["error"], shown


def test_a_version_trained_for_a_removed_model_can_be_deleted(serve_model, tmp_path):
    learns, gate = serve_model("learns"), tmp_path / "gate"
    make(learns)
    made = learns.python.trainings.create(
        model=learns.model,
        version=learns.version,
        input={"word": "ave", "gate": str(gate)},
        destination=MINE,
    )
    wait_until(lambda: learns.get(f"/v1/trainings/{made.id}").json["status"] == "processing", "the training")
    assert remove(learns, MINE).status == 204
    gate.touch()
    wait_until(lambda: learns.get(f"/v1/trainings/{made.id}").json["completed_at"], "the end")
    version = learns.get(f"/v1/trainings/{made.id}").json["output"]["version"].split(":")[1]
    assert remove(learns, f"{MINE}/versions/{version}").status == 204
    assert remove(learns, f"{MINE}/versions/{version}").status == 404


def test_a_trained_version_follows_changes_of_its_code(serve_model):
    learns = serve_model("learns", "--watch")
    first = train(learns, make(learns)).output["version"].split(":")[1]
    assert said(learns, MINE) == "greeting.txt salve Ada"
    code = learns.server.directory / "predict.py"
    code.write_text(code.read_text().replace("yield name", "yield name.upper()"))

    def moved():
        latest = learns.python.models.get(MINE).latest_version.id
        return latest if latest != first else None

    second = wait_until(moved, "the new version")
    assert said(learns, f"{MINE}:{second}") == "greeting.txt salve ADA"
    assert refusal(learns.python.predictions.create, version=first, input={}) == 422
    assert [one.id for one in learns.python.models.get(MINE).versions.list()] == [second, first]


def test_waiting_predictions_find_a_version_whose_code_changed_while_the_server_was_down(
    server_pool, data, tmp_path
):
    folder, gate = tmp_path / "learns", tmp_path / "gate"
    shutil.copytree(MODELS / "learns", folder)
    before = ServedModel(server_pool.fresh("tidegate", folder, env=data), "learns")
    first = train(before, make(before)).output["version"].split(":")[1]
    waits = before.python.predictions.create(version=first, input={"name": "Ada", "gate": str(gate)})
    before.kill()
    gate.touch()
    code = folder / "predict.py"
    code.write_text(code.read_text().replace("yield name", "yield name.upper()"))
    after = ServedModel(server_pool.fresh("tidegate", folder, env=data), "learns")
    assert after.python.models.get(MINE).latest_version.id != first

    def output():
        shown = after.show(waits.id)
        return "".join(shown["output"]) if shown["status"] == "succeeded" else None

    assert wait_until(output, "the end") == "greeting.txt salve ADA"


def test_a_trained_version_of_the_served_model_is_listed_with_the_folders_version(serve_model):
    learns = serve_model("learns")
    folder = learns.version
    version = train(learns, learns.model).output["version"]
    assert learns.version == folder
    assert said(learns, version) == "greeting.txt salve Ada"
    assert said(learns, learns.model) == "hello Ada"
    id = version.split(":")[1]
    model = learns.python.models.get(learns.model)
    assert [one.id for one in model.versions.list()] == [folder, id]
    assert remove(learns, f"{learns.model}/versions/{folder}").status == 403
    assert remove(learns, f"{learns.model}/versions/{id}").status == 204
    assert [one.id for one in model.versions.list()] == [folder]


def test_a_version_can_be_trained_further(serve_model):
    learns = serve_model("learns")
    make(learns)
    first = train(learns, MINE).output["version"].split(":")[1]
    second = train(learns, MINE, "ave", model=MINE, version=first).output["version"]
    assert said(learns, second) == "greeting.txt ave Ada"


def test_private_versions_are_visible_to_their_owner_only(serve_model):
    tokens = {"TIDEGATE_API_TOKENS": "a:ann,b:bob"}
    ann = serve_model("learns", env=tokens, token="a")
    bob = ServedModel(ann.server, "learns", "b")
    private = train(ann, make(ann)).output["version"]
    public = train(ann, make(ann, "open", "public"), "ave").output["version"]
    id = private.split(":")[1]

    assert said(ann, private) == "greeting.txt salve Ada"
    for version in (private, id, "ann/mine"):
        assert refusal(bob.python.predictions.create, version=version, input={}) == 422
    assert refusal(bob.python.models.predictions.create, "ann/mine", input={}) == 404
    assert bob.get("/v1/models/ann/mine/versions").status == 404
    assert bob.get(f"/v1/models/ann/mine/versions/{id}").status == 404
    deploy = {"hardware": "local", "min_instances": 0, "max_instances": 1}
    assert refusal(bob.python.deployments.create, name="app", model="ann/mine", version=id, **deploy) == 422
    assert remove(bob, f"ann/mine/versions/{id}").status == 404

    assert said(bob, public) == "greeting.txt ave Ada"
    assert remove(bob, f"ann/open/versions/{public.split(':')[1]}").status == 403
    assert said(bob, public) == "greeting.txt ave Ada"


def test_weights_that_are_not_a_file_are_passed_unchanged(serve_model):
    learns = serve_model("learns")
    made = train(learns, make(learns), "s3://bucket/salve", kind="text")
    assert made.output["weights"] == "s3://bucket/salve"
    assert said(learns, made.output["version"]) == "s3://bucket/salve Ada"


def test_an_output_without_weights_makes_no_version(serve_model):
    learns = serve_model("learns")
    made = train(learns, make(learns), kind="bare")
    assert requests.get(made.output, timeout=10).text == "salve"
    assert learns.python.models.get(MINE).latest_version is None


def test_without_a_data_folder_only_text_weights_make_a_version(serve_model):
    learns = serve_model("learns", env={"TIDEGATE_DATA_DIR": "none"})
    make(learns)
    assert set(train(learns, MINE).output) == {"weights", "loss"}
    version = train(learns, MINE, "ave", kind="text").output["version"]
    assert said(learns, version) == "ave Ada"


def test_weights_count_toward_the_accounts_storage_limit(serve_model):
    learns = serve_model("learns", "--max-stored-files", "8")
    make(learns)
    first = train(learns, MINE, "12345678").output["version"]
    start = learns.python.trainings.create
    wanted = {"model": learns.model, "version": learns.version, "destination": MINE, "input": {"word": "ave"}}
    assert refusal(start, **wanted) == 507
    assert said(learns, first) == "greeting.txt 12345678 Ada"
    assert remove(learns, f"{MINE}/versions/{first.split(':')[1]}").status == 204
    train(learns, MINE, "ave")


def test_trained_versions_are_loaded_on_demand_and_count_as_loaded(serve_model):
    learns = serve_model("learns", "--max-loaded", "1")
    make(learns)
    versions = [train(learns, MINE, word).output["version"] for word in ("salve", "ave")]
    for _ in range(2):
        assert [said(learns, version) for version in versions] == [
            "greeting.txt salve Ada",
            "greeting.txt ave Ada",
        ]
        assert said(learns, learns.model) == "hello Ada"
        assert learns.server.model_process_count() == 1


def test_operators_see_trained_versions(serve_model):
    learns = serve_model("learns")
    version = train(learns, make(learns)).output["version"].split(":")[1]
    train(learns, MINE, "ave")
    said(learns, f"{MINE}:{version}")
    models = learns.get("/admin/models").json["models"]
    assert version in [one["version"] for one in models if one["model"] == MINE]
    assert [one["model"] for one in learns.get("/admin/queues").json["queues"]].count(MINE) == 1
    assert MINE in [one["model"] for one in learns.get("/admin/children").json["children"]]
    metrics = learns.get("/metrics").body.decode()
    assert metrics.count(f'tidegate_jobs_waiting{{model="{MINE}"}}') == 1
    labels = f'model="{MINE}",face="replicate",kind="prediction",status="succeeded"'
    assert f"tidegate_jobs_finished_total{{{labels}}} 1" in metrics

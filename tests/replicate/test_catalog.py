"""Several models behind one Replicate API, with both official clients."""

import asyncio

from clients import Npm, ServedModel
from environment import MODELS
from replicate.client import Client
from waiting import wait_until

WORDS = """
from cog import BasePredictor

class Predictor(BasePredictor):
    def predict(self, text: str = "x") -> str:
        return {word!r} + text
"""


def write(folder, word):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predict.py").write_text(WORDS.format(word=word))
    (folder / "cog.yaml").write_text('predict: "predict.py:Predictor"\n')


def start(server_pool, root, data, *flags):
    for owner, name in [("ann", "one"), ("bob", "two")]:
        write(root / owner / name, f"{name} ")
    server = server_pool.fresh("tidegate", root, flags=flags, env=data)
    return server, Client(api_token="none", base_url=server.url, timeout=30), Npm(server)


def latest(server, model):
    return server.get(f"/v1/models/{model}").json["latest_version"]["id"]


def test_both_clients_reach_every_model(server_pool, tmp_path, data):
    server, python, npm = start(server_pool, tmp_path / "models", data)
    assert [f"{m.owner}/{m.name}" for m in python.models.list().results] == ["ann/one", "bob/two"]
    for model, word in [("ann/one", "one"), ("bob/two", "two")]:
        version = latest(server, model)
        assert python.run(f"{model}:{version}", input={"text": "p"}) == f"{word} p"
        assert python.run(model, input={"text": "q"}) == f"{word} q"
        assert npm("run", ref=f"{model}:{version}", options={"input": {"text": "n"}}) == f"{word} n"
        made = python.predictions.create(version=version, input={"text": "v"})
        made.wait()
        assert (made.model, made.version, made.output) == (model, version, f"{word} v")
    listed = python.predictions.list().results
    assert {one.model for one in listed} == {"ann/one", "bob/two"}
    found = python.models.search("bob").results
    assert [f"{m.owner}/{m.name}" for m in found] == ["bob/two"]


def test_both_async_variants_mix_models(server_pool, tmp_path, data):
    server, python, _ = start(server_pool, tmp_path / "models", data, "--max-loaded", "1")
    wanted = [("ann/one", "one"), ("bob/two", "two")] * 10

    async def all_at_once():
        calls = (
            python.async_run(f"{model}:{latest(server, model)}", input={"text": str(n)})
            for n, (model, _) in enumerate(wanted)
        )
        return await asyncio.gather(*calls)

    expected = [f"{word} {n}" for n, (_, word) in enumerate(wanted)]
    assert asyncio.run(all_at_once()) == expected


def test_a_version_of_one_model_is_not_one_of_another(server_pool, tmp_path, data):
    server, _, _ = start(server_pool, tmp_path / "models", data)
    wrong = f"ann/one:{latest(server, 'bob/two')}"
    reply = server.post("/v1/predictions", {"version": wrong, "input": {}})
    assert reply.status == 422 and reply.json["title"] == "Invalid version or not permitted"


def test_a_new_version_is_listed_before_the_old_one(server_pool, tmp_path, data):
    server, python, npm = start(server_pool, tmp_path / "models", data, "--watch")
    before = latest(server, "ann/one")
    write(server.directory / "ann" / "one", "uno ")
    after = wait_until(
        lambda: (new := latest(server, "ann/one")) != before and new, "the new version", timeout=20
    )
    assert [one.id for one in python.models.get("ann/one").versions.list().results] == [after, before]
    assert python.run(f"ann/one:{after}", input={"text": "p"}) == "uno p"
    assert npm("run", ref="ann/one", options={"input": {"text": "n"}}) == "uno n"
    gone = server.post("/v1/predictions", {"version": before, "input": {}})
    assert gone.status == 422


def test_a_restored_version_is_listed_once(server_pool, tmp_path, data):
    server, python, _ = start(server_pool, tmp_path / "models", data, "--watch")
    first = latest(server, "ann/one")
    write(server.directory / "ann" / "one", "uno ")
    second = wait_until(lambda: (new := latest(server, "ann/one")) != first and new, "another", timeout=20)
    write(server.directory / "ann" / "one", "one ")
    wait_until(lambda: latest(server, "ann/one") == first, "the first again", timeout=20)
    assert [one.id for one in python.models.get("ann/one").versions.list().results] == [first, second]
    assert python.run(f"ann/one:{first}", input={"text": "x"}) == "one x"


def test_a_deployment_runs_its_model(server_pool, tmp_path, data):
    server, python, _ = start(server_pool, tmp_path / "models", data)
    python.deployments.create(
        name="app",
        model="bob/two",
        version=latest(server, "bob/two"),
        hardware="local",
        min_instances=0,
        max_instances=1,
    )
    made = python.deployments.predictions.create("anonymous/app", input={"text": "d"})
    made.wait()
    assert made.output == "two d"


def test_streaming_and_plain_models_work_together(server_pool, tmp_path, data):
    root = tmp_path / "models"
    root.mkdir()
    (root / "gen").symlink_to(MODELS / "generator", target_is_directory=True)
    server, python, _ = start(server_pool, root, data)
    plain = python.models.predictions.create(("ann", "one"), input={})
    stream = python.models.predictions.create(("local", "gen"), input={})
    assert "stream" in stream.urls and "stream" not in plain.urls
    events = [event.data for event in stream.stream() if event.event.value == "output"]
    assert events == ServedModel(server, "gen").show(stream.id)["output"]

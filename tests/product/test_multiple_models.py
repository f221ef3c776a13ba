"""A folder of models: names, loading on demand, reloading of changed files."""

import os
import shutil
import signal

import pytest
from environment import MODELS, copy_model
from waiting import wait_until

SAY = """
from cog import BasePredictor

class Predictor(BasePredictor):
    def predict(self, text: str = "x", gate: str = "") -> str:
        import os, time
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        return {word!r} + text
"""


def write_model(folder, word, image=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predict.py").write_text(SAY.format(word=word))
    line = f"image: {image}\n" if image else ""
    (folder / "cog.yaml").write_text(f'predict: "predict.py:Predictor"\n{line}')


@pytest.fixture
def models(tmp_path):
    """Two models of two owners, and one that says its name itself."""
    root = tmp_path / "models"
    write_model(root / "one", "one ")
    write_model(root / "ann" / "two", "two ")
    write_model(root / "folder", "three ", image="r8.im/bob/three:latest")
    return root


def say(server, model, text="x", **input):
    reply = server.post(f"/models/{model}/predictions", {"input": {"text": text, **input}})
    assert reply.status == 200, str(reply)
    return reply.json["output"]


def names(server):
    return sorted(server.get("/").json["models"])


def version(server, model):
    return server.get("/").json["models"][model]["version"]


def test_a_model_is_found_by_a_short_name_that_no_other_has(start_server, models):
    write_model(models / "eve" / "two", "another two ")
    server = start_server(models)
    assert [say(server, name) for name in ("three", "one")] == ["three x", "one x"]
    assert server.post("/models/two/predictions", {"input": {}}).status == 404


def test_the_only_model_is_found_by_its_short_name(start_server):
    server = start_server("echo")
    for name in ("local/echo", "echo"):
        assert server.get(f"/models/{name}/health-check").json["status"] == "READY"


def test_each_model_has_its_own_name_and_api(start_server, models):
    server = start_server(models)
    assert names(server) == ["ann/two", "bob/three", "local/one"]
    assert [say(server, name) for name in names(server)] == ["two x", "three x", "one x"]
    assert server.get("/models/ann/two/health-check").json["status"] == "READY"
    assert server.get("/models/ann/two/openapi.json").status == 200
    assert server.get("/models/ann/two/docs").headers["location"] == "../../../ui/models/ann/two"
    assert server.get("/docs").headers["location"] == "ui/docs"
    index = server.get("/models/ann/two/").json
    assert index["predictions_url"] == "/models/ann/two/predictions"
    assert server.get(index["openapi_url"]).status == server.get(index["healthcheck_url"]).status == 200
    assert server.health()["models"] == dict.fromkeys(names(server), "READY")
    done = server.put("/models/local/one/predictions/mine", {"input": {"text": "y"}})
    assert done.json["output"] == "one y"
    assert server.get("/models/local/one/predictions/mine").json["output"] == "one y"


def test_an_unknown_model_path_lists_the_models(start_server, models):
    server = start_server(models)
    for path in ["/predictions", "/models/ann/none/predictions", "/models/ann"]:
        reply = server.post(path, {"input": {}})
        assert reply.status == 404
        assert "/models/ann/two/predictions" in reply.json["error"]
    assert server.post("/models/ann/two/nothing", {}).status == 404
    assert server.get("/models/ann/two/predictions").status == 405


def test_two_models_with_one_name_are_refused(models, tidegate):
    write_model(models / "again", "again ", image="ann/two")
    done = tidegate("serve", str(models), "--port", "0")
    assert done.returncode == 64
    assert "two models have the name `ann/two`" in done.stderr


def test_flags_for_one_model_are_refused_for_several(models, tidegate):
    done = tidegate("serve", str(models), "--port", "0", "--predict", "predict.py:Predictor")
    assert done.returncode == 64
    assert "--predict is for one model" in done.stderr


def test_a_broken_model_does_not_affect_the_others(start_server, models):
    (models / "one" / "cog.yaml").write_text("predict: [1\n")
    (models / "ann" / "two" / "predict.py").write_text("import nothing_like_this\n" + SAY.format(word="two "))
    server = start_server(models)
    assert names(server) == ["ann/two", "bob/three"]
    expected = {"ann/two": "SETUP_FAILED", "bob/three": "READY"}
    wait_until(lambda: server.health()["models"] == expected, "the other model")
    assert say(server, "bob/three") == "three x"
    assert server.post("/models/ann/two/predictions", {"input": {}}).status == 503
    assert "failed to read model, skipping it" in server.log()


def test_the_owner_can_be_configured(start_server, models):
    assert names(start_server(models, "--owner", "eve")) == ["eve/one", "eve/three", "eve/two"]


def test_a_crashed_model_does_not_affect_the_others(start_server, models, gate):
    server = start_server(models)
    pids = {child["model"]: child["pid"] for child in server.get("/admin/children").json["children"]}
    with server.in_background({"text": "y", "gate": str(gate)}, path="/models/ann/two/predictions") as held:
        wait_until(lambda: server.get("/models/ann/two/health-check").json["status"] == "BUSY", "the job")
        os.kill(pids["local/one"], signal.SIGKILL)
        wait_until(
            lambda: any(
                child["model"] == "local/one" and child["restarts"] == 1
                for child in server.get("/admin/children").json["children"]
            ),
            "another process",
        )
        assert say(server, "bob/three") == "three x"
        gate.open()
        assert held.reply().json["output"] == "two y"
    server.wait_health("READY")
    assert say(server, "local/one") == "one x"


def test_models_are_loaded_on_the_first_request(start_server, models):
    server = start_server(models, "--lazy")
    assert server.model_process_count() == 0
    assert server.get("/models/ann/two/openapi.json").status == 200
    assert server.model_process_count() == 0
    assert say(server, "ann/two") == "two x"
    assert server.model_process_count() == 1
    assert server.post("/models/local/one/predictions", {"input": {"text": 7}}).status == 422
    assert server.model_process_count() == 1


def test_an_idle_model_is_unloaded_and_loaded_again(start_server, models):
    server = start_server(models, "--idle-timeout", "300ms")
    assert say(server, "ann/two") == "two x"
    assert server.model_process_count() == 1
    wait_until(lambda: server.model_process_count() == 0, "the model to leave")
    assert server.health()["status"] == "READY"
    assert say(server, "ann/two") == "two x"


def test_a_busy_model_is_not_unloaded(start_server, models, gate):
    server = start_server(models, "--idle-timeout", "100ms")
    with server.in_background({"text": "y", "gate": str(gate)}, path="/models/ann/two/predictions") as held:
        wait_until(lambda: server.model_process_count() == 1, "the model")
        assert [say(server, "local/one") for _ in range(3)] == ["one x"] * 3
        wait_until(lambda: server.model_process_count() == 1, "the other to leave")
        gate.open()
        assert held.reply().json["output"] == "two y"


def test_more_models_than_max_loaded_take_turns(start_server, models):
    server = start_server(models, "--max-loaded", "1")
    for _ in range(2):
        for name, word in [("ann/two", "two"), ("bob/three", "three"), ("local/one", "one")]:
            assert say(server, name) == f"{word} x"
            assert server.model_process_count() == 1


def test_a_busy_model_is_not_evicted_and_the_next_model_waits(start_server, models, gate):
    server = start_server(models, "--max-loaded", "1")
    with server.in_background({"text": "y", "gate": str(gate)}, path="/models/ann/two/predictions") as held:
        wait_until(lambda: server.model_process_count() == 1, "the first model")
        with server.in_background({"text": "z"}, path="/models/local/one/predictions") as waits:
            wait_until(
                lambda: any(
                    queue["model"] == "local/one" and queue["waiting"] == 1
                    for queue in server.get("/admin/queues").json["queues"]
                ),
                "the second job to wait",
            )
            assert not held.done
            gate.open()
            assert held.reply().json["output"] == "two y"
            assert waits.reply().json["output"] == "one z"


def test_a_failed_on_demand_setup_is_reported_and_retried(start_server, models):
    target = models / "one" / "predict.py"
    target.write_text(
        SAY.format(word="one ") + "\n    def setup(self):\n        raise ValueError('not today')\n"
    )
    server = start_server(models, "--lazy")
    reply = server.post("/models/local/one/predictions", {"input": {}})
    assert reply.status == 200 and reply.json["status"] == "failed", str(reply)
    health = server.get("/models/local/one/health-check").json
    assert health["status"] == "SETUP_FAILED"
    assert "not today" in health["setup"]["logs"]
    assert say(server, "ann/two") == "two x"


def test_changed_files_make_a_new_version(start_server, models):
    server = start_server(models, "--watch")
    before = version(server, "local/one")
    write_model(server.directory / "one", "uno ")
    wait_until(lambda: version(server, "local/one") != before, "the new version")
    assert say(server, "local/one") == "uno x"
    assert version(server, "ann/two") != version(server, "local/one")


def test_ignored_files_do_not_make_a_new_version(start_server, models):
    (models / "one" / ".dockerignore").write_text("out\n")
    server = start_server(models, "--watch")
    before, of_other = version(server, "local/one"), version(server, "ann/two")
    (server.directory / "one" / "out").mkdir()
    (server.directory / "one" / "out" / "result.txt").write_text("1")
    write_model(server.directory / "ann" / "two", "due ")
    wait_until(lambda: version(server, "ann/two") != of_other, "the new version")
    assert version(server, "local/one") == before


def test_the_old_version_finishes_its_jobs(start_server, models, gate):
    server = start_server(models, "--watch")
    before = version(server, "local/one")
    with server.in_background({"text": "y", "gate": str(gate)}, path="/models/local/one/predictions") as held:
        wait_until(lambda: server.get("/models/local/one/health-check").json["status"] == "BUSY", "the job")
        write_model(server.directory / "one", "uno ")
        wait_until(lambda: version(server, "local/one") != before, "the new version")
        assert say(server, "local/one") == "uno x"
        assert server.model_process_count() == 4
        gate.open()
        assert held.reply().json["output"] == "one y"
    wait_until(lambda: server.model_process_count() == 3, "the old version to leave")


def test_a_version_that_does_not_load_does_not_replace_one_that_works(start_server, models):
    server = start_server(models, "--watch")
    before = version(server, "local/one")
    (server.directory / "one" / "predict.py").write_text(
        "raise RuntimeError('broken')\n" + SAY.format(word="uno ")
    )
    wait_until(lambda: "keeping the current version" in server.log(), "the complaint")
    assert "broken" in server.log()
    assert version(server, "local/one") == before
    assert say(server, "local/one") == "one x"


def test_models_are_added_and_removed_with_their_folders(start_server, models):
    server = start_server(models, "--watch")
    write_model(server.directory / "new", "new ")
    shutil.rmtree(server.directory / "ann")
    wait_until(lambda: names(server) == ["bob/three", "local/new", "local/one"], "the new list")
    assert say(server, "local/new") == "new x"
    assert server.post("/models/ann/two/predictions", {"input": {}}).status == 404
    wait_until(lambda: server.model_process_count() == 3, "the old one to leave")


def test_sighup_rescans_the_folders(start_server, models):
    server = start_server(models)
    before = version(server, "local/one")
    write_model(server.directory / "one", "uno ")
    assert version(server, "local/one") == before
    server.signal(signal.SIGHUP)
    wait_until(lambda: version(server, "local/one") != before, "the new version")
    assert say(server, "local/one") == "uno x"


def test_a_single_model_is_reloaded_too(start_server, tmp_path):
    write_model(tmp_path / "alone", "one ")
    server = start_server(tmp_path / "alone", "--watch")
    assert server.predict({}).json["output"] == "one x"
    write_model(server.directory, "uno ")
    wait_until(lambda: server.predict({}).json["output"] == "uno x", "the new version")


def test_one_model_can_be_loaded_on_demand(start_server):
    server = start_server("echo", "--lazy", "--idle-timeout", "300ms")
    assert server.model_process_count() == 0
    assert server.predict({"text": "y"}).json["output"] == "y"
    wait_until(lambda: server.model_process_count() == 0, "the model to leave")


def test_jobs_of_several_models_survive_a_kill(start_server, models, gate, receiver, tmp_path):
    env = {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}
    server = start_server(models, env=env)
    for name in names(server):
        body = {
            "id": name.replace("/", "-"),
            "input": {"text": name, "gate": str(gate)},
            "webhook": f"{receiver.url}/{name.replace('/', '-')}",
            "webhook_events_filter": ["completed"],
        }
        reply = server.post(f"/models/{name}/predictions", body, headers={"Prefer": "respond-async"})
        assert reply.status == 202, str(reply)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    shutil.rmtree(models / "folder")
    gate.open()
    start_server(models, env=env)
    assert receiver.wait_terminal("/ann-two")["output"] == "two ann/two"
    assert receiver.wait_terminal("/local-one")["output"] == "one local/one"
    gone = receiver.wait_terminal("/bob-three")
    assert gone["status"] == "failed"
    assert "`bob/three` is no longer served" in gone["error"]


def test_a_symlink_in_the_folder_is_a_model(start_server, models, tmp_path):
    server = start_server(models, "--watch")
    copied = copy_model(MODELS / "echo", tmp_path)
    (server.directory / "linked").symlink_to(copied, target_is_directory=True)
    wait_until(lambda: "local/linked" in names(server), "the linked model")
    assert say(server, "local/linked", "y") == "y"

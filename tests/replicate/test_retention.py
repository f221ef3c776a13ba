"""Predictions whose data has been removed, with both clients."""

import asyncio
from pathlib import Path

from waiting import wait_until

FLAGS = ("--keep-for", "1h", "--keep-data-for", "300ms")


def removed(served, id):
    def probe():
        seen = served.show(id)
        return seen if seen["data_removed"] else None

    return wait_until(probe, "the removal of the data")


def test_data_is_removed_and_the_prediction_remains(serve_model):
    echo = serve_model("echo", *FLAGS)
    made = echo.create({"text": "secret", "log": "said"}, headers={"Prefer": "wait"}).json
    assert (made["output"], made["logs"], made["data_removed"]) == ("secret", "said\n", False)
    seen = removed(echo, made["id"])
    gone = {"input": None, "output": None, "logs": None, "data_removed": True}
    assert seen == made | gone

    python = echo.python.predictions.get(made["id"])
    assert (python.status, python.input, python.output, python.logs) == ("succeeded", None, None, None)
    python.wait()
    assert python.progress is None
    assert asyncio.run(echo.python.predictions.async_get(made["id"])).output is None
    assert [one.output for one in echo.python.predictions.list()] == [None]
    assert echo.npm("get", id=made["id"]) == seen
    assert echo.npm("wait", id=made["id"])["status"] == "succeeded"
    assert echo.npm("list")["results"] == [seen]


def test_output_files_are_removed_with_the_data(serve_model, data):
    files = serve_model("files_out", *FLAGS)
    made = files.create({"text": "hello"}, headers={"Prefer": "wait"}).json
    path = made["output"].removeprefix(files.server.url)
    removed(files, made["id"])
    wait_until(lambda: files.server.get(path).status == 404, "the file to go")
    kept = Path(data["TIDEGATE_DATA_DIR"]) / "files"
    wait_until(lambda: not list(kept.iterdir()), "the bytes to go")


def test_a_failed_prediction_keeps_its_error(serve_model):
    echo = serve_model("echo", *FLAGS)
    made = echo.create({"fail": "no"}, headers={"Prefer": "wait"}).json
    seen = removed(echo, made["id"])
    assert (seen["status"], seen["error"]) == ("failed", made["error"])


def test_a_running_prediction_keeps_its_data(serve_model, tmp_path):
    echo, gate = serve_model("echo", *FLAGS), tmp_path / "gate"
    first = echo.create({}).json
    made = echo.create({"text": "t", "gate": str(gate)}).json
    removed(echo, first["id"])
    assert echo.show(made["id"])["input"]["text"] == "t"
    gate.touch()
    removed(echo, made["id"])


def test_data_stays_removed_after_a_restart(serve_model):
    before = serve_model("echo", *FLAGS)
    made = before.create({"text": "secret"}).json
    removed(before, made["id"])
    before.kill()
    after = serve_model("echo", *FLAGS)
    assert after.show(made["id"])["data_removed"] is True
    page = after.get("/v1/predictions").json["results"]
    assert [one["output"] for one in page] == [None]


def test_a_stream_of_removed_output_contains_only_the_end(serve_model):
    generator = serve_model("generator", *FLAGS)
    made = generator.create({"count": 2}).json
    removed(generator, made["id"])
    response = generator.server.get(made["urls"]["stream"].removeprefix(generator.server.url)).body.decode()
    assert "event: done" in response
    assert "chunk" not in response


def test_a_repeated_request_is_answered_without_removed_data(serve_model):
    echo = serve_model("echo", *FLAGS)
    assert echo.server.put("/predictions/mine", {"input": {"text": "x"}}).json["output"] == "x"
    removed(echo, "mine")
    again = echo.server.put("/predictions/mine", {"input": {"text": "x"}})
    assert (again.status, again.json["status"]) == (200, "succeeded"), str(again)
    assert "output" not in again.json


def test_without_the_flag_data_stays_as_long_as_the_prediction(serve_model):
    echo = serve_model("echo", "--keep-for", "1s")
    made = echo.create({"text": "x"}, headers={"Prefer": "wait"}).json

    def gone():
        reply = echo.get(f"/v1/predictions/{made['id']}")
        assert reply.status == 404 or reply.json["data_removed"] is False
        return reply.status == 404

    wait_until(gone, "the prediction to be forgotten")

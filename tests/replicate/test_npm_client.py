"""Replicate's npm client, unchanged, against a server with one model."""

import pytest
from clients import NpmError
from waiting import wait_until


def test_run_by_name_and_by_version(serve_model):
    echo = serve_model("echo")
    assert echo.npm("run", ref=echo.model, options={"input": {"text": "by name"}}) == "by name"
    assert echo.npm("run", ref=echo.ref, options={"input": {"text": "by version"}}) == "by version"
    polled = {"input": {"text": "polled"}, "wait": {"mode": "poll", "interval": 50}}
    assert echo.npm("run", ref=echo.model, options=polled) == "polled"


def test_a_failed_run_throws_the_models_error(serve_model):
    echo = serve_model("echo")
    with pytest.raises(NpmError, match="not today"):
        echo.npm("run", ref=echo.model, options={"input": {"fail": "not today"}})


def test_stream(serve_model):
    generator = serve_model("generator")
    events = generator.npm("stream", ref=generator.model, options={"input": {"count": 3, "log": "hello"}})
    assert [data for event, data in events if event == "output"] == ["chunk0", "chunk1", "chunk2"]
    assert "".join(data for event, data in events if event == "logs") == "hello\n"
    assert events[-1] == ["done", "{}"]


def test_a_stream_needs_no_token(serve_model):
    """The client opens it without one."""
    generator = serve_model("generator", env={"TIDEGATE_API_TOKENS": "secret:ann"}, token="secret")
    events = generator.npm("stream", ref=generator.ref, options={"input": {"count": 1}})
    assert [data for event, data in events if event == "output"] == ["chunk0"]


def test_a_stream_of_a_failure_throws(serve_model):
    generator = serve_model("generator")
    with pytest.raises(NpmError, match="no more"):
        generator.npm("stream", ref=generator.model, options={"input": {"fail_at": 1}})


def test_create_get_list_cancel(serve_model, tmp_path):
    echo = serve_model("echo")
    made = echo.npm("create", options={"version": echo.version, "input": {"text": "x"}})
    assert echo.npm("wait", id=made["id"])["output"] == "x"
    held = echo.npm("create", options={"model": echo.model, "input": {"gate": str(tmp_path / "never")}})
    assert held["status"] in ("starting", "processing")
    canceled = echo.npm("cancel", id=held["id"])
    assert (canceled["status"], bool(canceled["completed_at"])) == ("canceled", True)
    assert echo.npm("get", id=held["id"]) == canceled
    assert [one["id"] for one in echo.npm("list")["results"]] == [held["id"], made["id"]]


def test_pages_are_followed(serve_model):
    echo = serve_model("echo")
    ids = echo.npm("many", options={"version": echo.version, "input": {}}, count=105)
    assert sorted(echo.npm("all")) == sorted(ids)


def test_an_expired_wait_returns_the_unfinished_prediction(serve_model, tmp_path):
    echo = serve_model("echo")
    gate = tmp_path / "gate"
    options = {"version": echo.version, "input": {"text": "late", "gate": str(gate)}, "wait": 1}
    made = echo.npm("create", options=options)
    assert (made["status"], made["output"]) == ("starting", None)
    wait_until(lambda: echo.show(made["id"])["status"] == "processing", "the model to begin")
    gate.touch()
    assert echo.npm("wait", id=made["id"])["output"] == "late"


def test_models_account_hardware_and_collections(serve_model):
    echo = serve_model("echo")
    model = echo.npm("model", owner="local", name="echo")
    assert model["latest_version"]["id"] == echo.version
    assert [one["id"] for one in echo.npm("versions", owner="local", name="echo")["results"]] == [
        echo.version
    ]
    assert echo.npm("version", owner="local", name="echo", id=echo.version)["id"] == echo.version
    assert [one["name"] for one in echo.npm("models")["results"]] == ["echo"]
    assert [one["name"] for one in echo.npm("search", text="ech")["results"]] == ["echo"]
    assert echo.npm("search", text="nothing of the kind")["results"] == []
    assert echo.npm("account")["username"] == "anonymous"
    assert echo.npm("hardware")[0]["sku"] == "local"
    assert [one["slug"] for one in echo.npm("collections")["results"]] == ["all"]
    assert echo.npm("secret")["key"].startswith("whsec_")


def test_errors_have_their_status(serve_model):
    echo = serve_model("echo")
    with pytest.raises(NpmError) as raised:
        echo.npm("create", options={"version": "0" * 64, "input": {}})
    assert raised.value.status == 422
    with pytest.raises(NpmError) as raised:
        echo.npm("get", id="unknown")
    assert raised.value.status == 404

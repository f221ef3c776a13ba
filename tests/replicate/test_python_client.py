"""Replicate's Python client, unchanged, against a server with one model."""

import asyncio
import json

import pytest
from replicate.exceptions import ModelError, ReplicateError
from replicate.webhook import Webhooks
from waiting import wait_until


def test_run_by_name_and_by_version(serve_model):
    echo = serve_model("echo")
    assert echo.python.run(echo.model, input={"text": "by name"}) == "by name"
    assert echo.python.run(echo.ref, input={"text": "by version"}) == "by version"


def test_run_async(serve_model):
    echo = serve_model("echo")

    async def story():
        refs = [echo.model, echo.ref]
        return [await echo.python.async_run(ref, input={"text": ref}) for ref in refs] == refs

    assert asyncio.run(story())


def test_run_of_a_generator_is_an_iterator(serve_model):
    generator = serve_model("generator")
    assert list(generator.python.run(generator.ref, input={"count": 3})) == ["chunk0", "chunk1", "chunk2"]


def test_run_of_a_slow_model_waits_for_the_end(serve_model, tmp_path):
    """The answer of a wait that is over must not look finished."""
    echo, gate = serve_model("echo"), tmp_path / "gate"
    made = echo.python.predictions.create(
        version=echo.version, input={"text": "late", "gate": str(gate)}, wait=1
    )
    assert made.status == "starting"
    assert made.output is None
    wait_until(lambda: echo.show(made.id)["status"] == "processing", "the model to begin")
    gate.touch()
    made.wait()
    assert (made.status, made.output) == ("succeeded", "late")


def test_a_failed_run_raises_the_models_error(serve_model):
    echo = serve_model("echo")
    with pytest.raises(ModelError, match="not today") as raised:
        echo.python.run(echo.model, input={"fail": "not today"})
    assert raised.value.prediction.status == "failed"


def test_create_get_reload_list(serve_model):
    echo = serve_model("echo")
    made = [echo.python.predictions.create(version=echo.version, input={"text": str(n)}) for n in range(3)]
    for prediction in made:
        prediction.wait()
    got = echo.python.predictions.get(made[0].id)
    assert (got.output, got.model, got.version) == ("0", echo.model, echo.version)
    assert got.metrics["predict_time"] <= got.metrics["total_time"]
    page = echo.python.predictions.list()
    assert [prediction.id for prediction in page.results] == [prediction.id for prediction in reversed(made)]
    assert page.next is None


def test_pages_are_followed(serve_model):
    echo = serve_model("echo")
    ids = [echo.create({"text": str(n)}).json["id"] for n in range(120)]
    wait_until(lambda: echo.show(ids[-1])["status"] == "succeeded", "the last one")
    first = echo.python.predictions.list()
    second = echo.python.predictions.list(first.next)
    assert [one.id for one in [*first.results, *second.results]] == ids[::-1]
    again = echo.python.predictions.list(second.previous)
    assert [one.id for one in again.results] == [one.id for one in first.results]


def test_cancel(serve_model):
    cancel = serve_model("cancel")
    made = cancel.python.predictions.create(version=cancel.version, input={"how": "loop"})
    wait_until(lambda: cancel.show(made.id)["status"] == "processing", "the model to begin")
    made.cancel()
    assert made.status == "canceled"
    made.reload()
    assert made.status == "canceled"
    assert made.completed_at


def test_async_create_wait_cancel(serve_model, tmp_path):
    echo = serve_model("echo")

    async def story():
        made = await echo.python.predictions.async_create(version=echo.version, input={"text": "x"})
        await made.async_wait()
        held = await echo.python.models.predictions.async_create(
            model=(echo.owner, echo.name), input={"gate": str(tmp_path / "never")}
        )
        await held.async_cancel()
        page = await echo.python.predictions.async_list()
        return made.output, held.status, [one.id for one in page.results] == [held.id, made.id]

    assert asyncio.run(story()) == ("x", "canceled", True)


def test_stream(serve_model):
    generator = serve_model("generator")
    events = list(generator.python.stream(generator.model, input={"count": 3, "log": "hello"}))
    names = [event.event.value for event in events]
    assert "".join(str(event) for event in events) == "chunk0chunk1chunk2"
    assert names.count("output") == 3
    assert "".join(event.data for event in events if event.event.value == "logs") == "hello\n"
    assert (names[-1], json.loads(events[-1].data)) == ("done", {})


def test_stream_async_and_by_version(serve_model):
    generator = serve_model("generator")

    async def story():
        stream = await generator.python.async_stream(generator.ref, input={"count": 2})
        return [str(event) async for event in stream]

    assert "".join(asyncio.run(story())) == "chunk0chunk1"


def test_a_stream_of_a_failure_raises(serve_model):
    generator = serve_model("generator")
    with pytest.raises(RuntimeError, match="no more"):
        list(generator.python.stream(generator.model, input={"fail_at": 1}))


def test_models_and_versions(serve_model):
    echo = serve_model("echo")
    model = echo.python.models.get(echo.model)
    assert (model.owner, model.name, model.latest_version.id) == ("local", "echo", echo.version)
    assert [one.id for one in model.versions.list().results] == [echo.version]
    version = model.versions.get(echo.version)
    assert "text" in version.openapi_schema["components"]["schemas"]["Input"]["properties"]
    assert [one.name for one in echo.python.models.list().results] == ["echo"]
    assert [one.name for one in echo.python.models.search("ECHO").results] == ["echo"]
    assert echo.python.models.search("nothing of the kind").results == []


def test_account_hardware_collections(serve_model):
    echo = serve_model("echo", env={"TIDEGATE_API_TOKENS": "secret:ann"}, token="secret")
    assert echo.python.accounts.current().username == "ann"
    assert [one.sku for one in echo.python.hardware.list()] == ["local"]
    assert [one.slug for one in echo.python.collections.list()] == ["all"]


def test_webhooks_are_verified_with_the_servers_secret(serve_model, receiver):
    echo = serve_model("echo")
    secret = echo.python.webhooks.default.secret()
    path = receiver.path()
    made = echo.python.predictions.create(
        version=echo.version,
        input={"text": "told"},
        webhook=receiver.url + path,
        webhook_events_filter=["completed"],
    )
    (response,) = receiver.wait(path)
    Webhooks.validate(headers=response.headers, body=response.body.decode(), secret=secret)
    assert response.json == echo.show(made.id)


def test_the_client_reads_errors(serve_model):
    echo = serve_model("echo")
    with pytest.raises(ReplicateError) as raised:
        echo.python.predictions.create(version="0" * 64, input={})
    assert (raised.value.status, raised.value.title) == (422, "Invalid version or not permitted")
    with pytest.raises(ReplicateError) as raised:
        echo.python.run(echo.model, input={"limit": 99})
    assert (raised.value.status, raised.value.title) == (422, "Input validation failed")
    with pytest.raises(ReplicateError) as raised:
        echo.python.predictions.get("unknown")
    assert raised.value.status == 404


def test_the_client_reads_the_error_for_a_wrong_token(serve_model):
    echo = serve_model("echo", env={"TIDEGATE_API_TOKENS": "secret:ann"}, token="wrong")
    with pytest.raises(ReplicateError) as raised:
        echo.python.run(echo.model, input={})
    assert (raised.value.status, raised.value.title) == (401, "Unauthenticated")

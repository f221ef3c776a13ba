"""The real Cog and tidegate servers behind the router."""

from __future__ import annotations

import openai
import pytest
from fleet_file import model
from launch import start_cog, start_tidegate
from raw_http import RawConnection, json_request
from router_process import Router
from waiting import wait_until


def client_of(running: Router) -> openai.OpenAI:
    return openai.OpenAI(base_url=running.openai_url, api_key="any", max_retries=0, timeout=20)


@pytest.fixture(params=["cog", "tidegate"])
def real_backend(request, tmp_path_factory):
    """A real server with the model `words`, and the kind of its endpoint."""
    start = {"cog": start_cog, "tidegate": start_tidegate}[request.param]
    server = start("words", tmp_path_factory.mktemp(f"real-{request.param}"))
    yield server
    server.stop()


def test_a_real_server_answers_chats_and_predictions(router, real_backend):
    running = router(model("m", {"url": real_backend.url, "kind": "cog"}))
    client = client_of(running)
    messages = [{"role": "user", "content": "one two three"}]
    reply = client.chat.completions.create(model="m", messages=messages)
    assert "one two three" in reply.choices[0].message.content
    chunks = client.chat.completions.create(model="m", messages=messages, stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "one two three" in "".join(texts)
    assert len([text for text in texts if text]) > 1, "the text arrives in parts"

    prediction = running.request("POST", "/predictions", json={"input": {"prompt": "a b"}})
    assert (prediction.json["status"], prediction.json["output"]) == ("succeeded", ["a", " b"])
    named = running.request("PUT", "/models/m/predictions/p1", json={"input": {"prompt": "a"}})
    assert (named.json["id"], named.json["output"]) == ("p1", ["a"])


def test_requests_one_after_the_other_to_a_real_server_all_succeed(router, real_backend):
    """Cog frees its slot some time after its response; the router waits for that."""
    running = router(model("m", {"url": real_backend.url, "kind": "cog"}))
    body = {"input": {"prompt": "a"}}
    statuses = [running.request("POST", "/predictions", json=body).status for _ in range(30)]
    assert statuses == [200] * 30


def test_a_real_prediction_is_cancelled_when_the_client_leaves(router, real_backend, tmp_path):
    running = router(model("m", {"url": real_backend.url, "kind": "cog"}))
    began = tmp_path / "began"
    body = {"input": {"prompt": "a b", "gate": str(tmp_path / "never"), "began": str(began)}}
    connection = RawConnection(running.server).send(json_request(body, target="/predictions"))
    wait_until(began.exists, "the prediction to begin")
    connection.close()
    running.wait_used_permits(0)
    reply = wait_until(
        lambda: next(
            (
                reply
                for reply in [running.request("POST", "/predictions", json={"input": {"prompt": "x"}})]
                if reply.status == 200
            ),
            None,
        ),
        "the next prediction",
    )
    assert reply.json["output"] == ["x"]


def test_the_models_of_real_servers_are_learned(router, real_backend):
    running = router(backends=(real_backend.url,))
    (name, *_) = [entry["id"] for entry in running.request("GET", "/v1/models").json["data"]]
    reply = running.chat("one two", name)
    assert "one two" in reply.json["choices"][0]["message"]["content"], str(reply)


def test_bad_input_of_a_real_server_is_told(router, real_backend):
    running = router(model("m", {"url": real_backend.url, "kind": "cog"}))
    reply = running.request("POST", "/predictions", json={"input": {"prompt": 5, "unknown": 1}})
    assert reply.status == 422, str(reply)


def test_predictions_of_a_tidegate_backend_have_its_output(router, tmp_path_factory):
    server = start_tidegate("words", tmp_path_factory.mktemp("real-tidegate"))
    try:
        running = router(backends=(f"tidegate={server.url}",))
        direct = server.predict({"prompt": "a b"}).json["output"]
        reply = running.request("POST", "/predictions", json={"input": {"prompt": "a b"}})
        assert (reply.status, reply.json["output"]) == (200, direct), str(reply)
    finally:
        server.stop()


RUN = "/client/v4/accounts/any/ai/run"


@pytest.mark.parametrize("backend_kind", ["tidegate", "cog"])
@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("draw", {"prompt": "a cat"}),
        ("draw", {"prompt": "a cat", "stream": True}),
        ("draw", {"prompt": "a cat", "image": "data:image/png;base64,AAE="}),
        ("any_output", {"prompt": '{"a": [1]}'}),
        ("any_output", {"prompt": "7"}),
    ],
)
def test_a_prompt_has_the_answer_of_the_server_itself(router, tmp_path_factory, backend_kind, name, body):
    """Also if the model does not continue the prompt but draws an image, for example."""
    server = start_tidegate(name, tmp_path_factory.mktemp("real-tidegate"))
    try:
        direct = server.post(f"{RUN}/{name}", body)
        running = router(model(name, {"url": server.url, "kind": backend_kind}))
        reply = running.request("POST", f"{RUN}/{name}", json=body)
        assert (reply.status, reply.content_type) == (200, direct.content_type), str(reply)
        assert reply.body == direct.body
    finally:
        server.stop()


def test_a_tidegate_backend_gets_the_inputs_of_a_model_unchanged(router, tmp_path_factory):
    """`model` and `image` are inputs like any others, and the token of the backend has an account."""
    token = "token-of-ann-0123456789abcdef0123"
    server = start_tidegate(
        "draw", tmp_path_factory.mktemp("real-tidegate"), env={"TIDEGATE_API_TOKENS": f"{token}:ann"}
    )
    try:
        endpoint = {"url": server.url, "kind": "tidegate", "headers": {"authorization": f"Bearer {token}"}}
        running = router(model("draw", endpoint))
        body = {"prompt": "x", "image": "data:image/png;base64,AAE="}
        reply = running.request("POST", "/ai/run/draw", json=body)
        assert (reply.status, reply.body) == (200, b"\x89PNG\r\n\x1a\n\x00\x01"), str(reply)
    finally:
        server.stop()


def test_a_text_of_a_tidegate_backend_is_streamed(router, tmp_path_factory):
    server = start_tidegate("words", tmp_path_factory.mktemp("real-tidegate"))
    try:
        running = router(backends=(f"tidegate={server.url}",))
        body = {"prompt": "one two", "stream": True}
        direct = server.post(f"{RUN}/words", body)
        reply = running.request("POST", f"{RUN}/local/words", json=body)
        assert (reply.body, reply.content_type) == (direct.body, direct.content_type)
        assert b"[DONE]" in reply.body
    finally:
        server.stop()


@pytest.mark.parametrize("backend_kind", ["tidegate", "cog"])
def test_the_image_of_a_queued_prompt_is_a_data_uri(router, tmp_path_factory, tmp_path, backend_kind):
    server = start_tidegate("draw", tmp_path_factory.mktemp("real-tidegate"))
    try:
        flags = ("--data-dir", str(tmp_path / "data"), "--drain-grace", "0s")
        running = router(model("draw", {"url": server.url, "kind": backend_kind}), flags=flags)
        target = f"{RUN}/draw?queueRequest=true"
        queued = running.request("POST", target, json={"requests": [{"prompt": "x"}]})
        id = queued.json["result"]["request_id"]

        def ended():
            return running.request("POST", target, json={"request_id": id}).json["result"].get("responses")

        (response,) = wait_until(ended, "the result")
        assert response["result"] == "data:image/png;base64,iVBORw0KGgp4"
    finally:
        server.stop()


def test_a_short_model_name_has_predictions_too(router, tmp_path_factory):
    server = start_tidegate("words", tmp_path_factory.mktemp("real-tidegate"))
    try:
        running = router(model("words", {"url": server.url, "kind": "tidegate"}))
        reply = running.request("POST", "/predictions", json={"input": {"prompt": "a b"}})
        assert (reply.status, reply.json["output"]) == (200, ["a", " b"]), str(reply)
    finally:
        server.stop()

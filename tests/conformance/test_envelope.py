"""spec/cog.md §1, request envelope: bodies, content types, ids."""

import json

import pytest

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"input": null}',
        b'{"input": {}}',
        b'{"id": null, "webhook": null}',
        b'{"unknown": 1, "input": {"text": "hello"}, "created_at": "x", "version": 3}',
        b'{"context": {"a": "b"}}',
        b'{"webhook_events_filter": []}',
        b'{"webhook_events_filter": ["start", "output", "logs", "completed"]}',
        b' \n{"input": {}}\n ',
    ],
)
def test_good_envelopes(serve, body):
    server = serve("echo")
    reply = server.request("POST", "/predictions", data=body, headers=JSON)
    server.wait_idle()
    assert (reply.status, reply.json["output"]) == (200, "hello")


@pytest.mark.parametrize("headers", [{}, JSON], ids=["no content type", "json"])
def test_no_body(serve, headers):
    server = serve("echo")
    reply = server.request("POST", "/predictions", headers=headers)
    server.wait_idle()
    # An empty body that claims to be JSON is malformed JSON to Cog.
    assert reply.status == (400 if server.is_cog and headers else 200)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"nonsense", 400),
        (b'{"input": {}} x', 400),
        (b"\xff\xfe", 400),
        (b'{"id": 5}', 422),
        (b'{"input": [1]}', 422),
        (b'{"input": "text"}', 422),
        (b'{"webhook": 5}', 422),
        (b'{"webhook_events_filter": ["finished"]}', 422),
        (b'{"webhook_events_filter": "start"}', 422),
        (b'{"webhook_events_filter": null}', 422),
        (b'{"context": {"a": 1}}', 422),
        (b'{"context": "a"}', 422),
        (b"[1]", 422),
        (b'"text"', 422),
        (b"5", 422),
        (b"null", 422),
    ],
)
def test_bad_envelopes(serve, body, status):
    # Deliberate difference: tidegate explains in JSON what Cog says as text.
    assert serve("echo").request("POST", "/predictions", data=body, headers=JSON).status == status


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/octet-stream", 415),
        ("nonsense", 415),
    ],
)
def test_content_types(serve, content_type, status):
    server = serve("echo")
    body = b'{"input": {"text": "typed"}}'
    reply = server.request("POST", "/predictions", data=body, headers={"Content-Type": content_type})
    server.wait_idle()
    assert reply.status == status
    if status == 200:
        assert reply.json["output"] == "typed"


def test_body_without_content_type(serve):
    server = serve("echo")
    reply = server.request("POST", "/predictions", data=b'{"input": {"text": "typed"}}')
    # Deliberate difference: Cog ignores the body and runs with defaults; tidegate never ignores one.
    if server.is_cog:
        server.wait_idle()
        assert reply.json["output"] == "hello"
    else:
        assert reply.status == 415
        assert "application/json" in reply.json["error"]


def test_body_over_100_mib(serve):
    server = serve("echo")
    size = 100 * 1024 * 1024 + 1
    body = b'{"input": {"text": "' + b"x" * size + b'"}}'
    assert server.request("POST", "/predictions", data=body, headers=JSON, timeout=30).status == 413


@pytest.mark.parametrize("size", [1_000_000, 9_000_000])
def test_large_inputs_arrive_whole(serve, size):
    server = serve("echo")
    text = "é" + "x" * size
    assert server.predict({"text": text}, timeout=30).json["output"] == text


@pytest.mark.parametrize("id", ["plain", "with space", "wïde", "a.b-c_d", "x" * 128])
def test_client_ids_come_back(serve, id):
    assert serve("echo").predict(id=id).json["id"] == id


def test_generated_ids_differ(serve):
    server = serve("echo")
    ids = {server.predict().json["id"] for _ in range(5)}
    assert len(ids) == 5


@pytest.mark.parametrize("path", ["/predictions", "/trainings"])
def test_put_with_another_id_in_the_body(compare, path):
    reply = compare("echo", lambda server: server.put(f"{path}/one", {"id": "other", "input": {}}))
    word = path.strip("/").removesuffix("s")
    assert reply.status == 422
    assert reply.detail == [
        {
            "loc": ["body", "id"],
            "msg": f"{word} ID must match the ID supplied in the URL",
            "type": "value_error",
        }
    ]


def test_put_with_the_same_id_in_the_body(serve):
    server = serve("echo")
    server.wait_idle()
    assert server.put("/predictions/same", {"id": "same", "input": {}}).json["id"] == "same"


def test_put_decodes_the_id_of_the_url(serve):
    server = serve("echo")
    server.wait_idle()
    assert server.put("/predictions/with%20space", {"input": {}}).json["id"] == "with space"


def test_a_duplicate_name_in_an_object(serve):
    server = serve("echo")
    body = json.dumps({"input": {"text": "hello"}})[:-2] + ', "text": "last"}}'
    reply = server.request("POST", "/predictions", data=body, headers=JSON)
    server.wait_idle()
    if server.is_cog:
        assert (reply.status, reply.json.get("output")) == (200, "last")
    else:
        # Deliberate difference: the validator and the user of the value could read different ones.
        assert reply.status == 422 and "duplicate name" in str(reply)

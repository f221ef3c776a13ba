"""spec/cog.md §8: Path, File and Secret inputs."""

import pytest

TEXT_URI = "data:text/plain;base64,aGVsbG8="
PNG_URI = "data:image/png;base64,iVBORw=="

DATA_INPUTS = [
    {"path": TEXT_URI},
    {"path": PNG_URI},
    {"path": "data:application/json;base64,e30="},
    {"path": "data:;base64,aGVsbG8="},
    {"path": "data:text/plain,hello%20there"},
    {"path": "data:text/plain;charset=utf-8;base64,aGVsbG8="},
    {"path": "data:application/x-unheard-of;base64,aGVsbG8="},
    {"path": "data:text/plain;base64,aGVs\nbG8="},
    {"file": TEXT_URI},
    {"file": "data:text/plain,hello%20there"},
    {"paths": [TEXT_URI, PNG_URI]},
    {"paths": []},
    {"files": [TEXT_URI, TEXT_URI]},
    {"secret": "hunter2"},
    {"secret": ""},
    {"text": TEXT_URI},
]


@pytest.mark.parametrize("input", DATA_INPUTS, ids=lambda input: str(input)[:70])
def test_inline(compare, input):
    reply = compare("files_in", lambda server: server.predict(input))
    assert (reply.status, reply.json["status"]) == (200, "succeeded")


@pytest.mark.parametrize(
    "input", [{"path": 5}, {"path": [TEXT_URI]}, {"paths": TEXT_URI}, {"paths": [1]}, {"secret": 1}], ids=str
)
def test_wrong_types(compare, input):
    assert compare("files_in", lambda server: server.post("/predictions", {"input": input})).status == 422


@pytest.mark.parametrize("field", ["path", "file"])
def test_url(compare, receiver, field):
    url = receiver.file("picture.png", b"\x89PNG data", "image/png")
    reply = compare("files_in", lambda server: server.predict({field: url}))
    assert reply.json["output"][field][-1 if field == "file" else 2] == "\x89PNG data"


@pytest.mark.parametrize("field", ["paths", "files"])
def test_urls(compare, receiver, field):
    urls = [receiver.file(f"{number}.txt", f"content {number}".encode()) for number in range(10)]
    reply = compare("files_in", lambda server: server.predict({field: urls}))
    assert "content 9" in reply.json["output"][field][9]


@pytest.mark.parametrize("name", ["name.tar.gz", "noextension", "with%20space.txt", "query.txt?a=b"])
def test_url_names(compare, receiver, name):
    url = receiver.file(name.partition("?")[0], b"x") + name[len(name.partition("?")[0]) :]
    assert compare("files_in", lambda server: server.predict({"path": url})).json["status"] == "succeeded"


def test_redirects_are_followed(compare, receiver):
    target = receiver.file("target.txt", b"moved")
    url = receiver.plan(receiver.path(), 302, headers={"Location": target})
    assert (
        compare("files_in", lambda server: server.predict({"path": url})).json["output"]["path"][2] == "moved"
    )


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.parametrize("field", ["path", "paths"])
def test_a_failed_download_fails_the_prediction(serve, receiver, status, field):
    url = receiver.plan(receiver.path("/gone.txt"), status)
    reply = serve("files_in").predict({field: [url] if field == "paths" else url})
    assert (reply.status, reply.json["status"]) == (200, "failed")
    # The wording after the prefix is that of the HTTP client.
    assert reply.json["error"].startswith("Input validation error: ")


def test_an_unreachable_host_fails_the_prediction(serve):
    reply = serve("files_in").predict({"path": "http://127.0.0.1:1/x"})
    assert (reply.status, reply.json["status"]) == (200, "failed")
    assert reply.json["error"].startswith("Input validation error: ")


def test_a_data_uri_without_a_comma(serve):
    server = serve("files_in")
    reply = server.predict({"path": "data:nocomma"})
    # Deliberate difference: Cog accepts the prediction and fails it; tidegate does not take it.
    if server.is_cog:
        assert (reply.status, reply.json["status"]) == (200, "failed")
    else:
        assert (reply.status, reply.detail[0]["loc"]) == (422, ["body", "input", "path"])


@pytest.mark.parametrize("text", ["local.txt", "/etc/hostname", "../x", "file:///etc/hostname", ""])
def test_values_that_are_not_urls(serve, text):
    server = serve("files_in")
    reply = server.predict({"path": text})
    # Deliberate difference: Cog gives the text to the model, which may open it.
    if server.is_cog:
        assert reply.status == 200
    else:
        assert (reply.status, reply.detail[0]["loc"]) == (422, ["body", "input", "path"])


def test_the_file_is_deleted_after_the_prediction(serve):
    server = serve("files_in")
    server.predict({"path": TEXT_URI})
    assert server.predict({"forgotten": True}).json["output"] is True


def test_user_agent(serve_fresh, receiver):
    server = serve_fresh("files_in", env={"COG_USER_AGENT": "my-agent/1"})
    url = receiver.file("a.txt", b"x")
    server.predict({"path": url})
    path = url.removeprefix(receiver.url)
    assert receiver.wait(path)[0].headers["user-agent"] == "my-agent/1"


def test_secret_is_wrapped(serve):
    output = serve("files_in").predict({"secret": "hunter2"}).json["output"]
    assert output["secret"] == ["secret", "**********", "Secret(**********)", "hunter2"]


def test_a_data_uri_that_cannot_be_decoded(serve):
    server = serve("files_in")
    reply = server.predict({"path": "data:text/plain;base64,!!!"})
    # Deliberate difference: Cog runs the model with an empty file.
    if server.is_cog:
        assert reply.json["status"] == "succeeded"
    else:
        assert (reply.status, reply.detail[0]["loc"]) == (422, ["body", "input", "path"])

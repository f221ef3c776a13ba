"""spec/cog.md §10: how returned values are represented."""

import pytest

SUCCEED = [
    "str", "empty_str", "unicode", "int", "big_int", "int64", "uint64", "negative", "float", "whole_float",
    "small_float", "large_float", "bool", "none", "list", "empty_list", "list_of_one", "tuple", "set",
    "frozenset", "namedtuple", "dict", "empty_dict", "int_keys", "ordered", "defaultdict", "generator",
    "model", "list_of_models", "nested_model", "dataclass", "model_dump", "dict_method", "enum", "int_enum",
    "nested_enum", "datetime", "datetime_utc", "pathlib", "path", "path_png", "path_json", "path_unknown",
    "path_bare", "path_empty", "path_spaces", "paths", "tuple_of_paths", "mixed", "generator_of_paths",
    "handle", "handles", "bytesio", "nested_stringio", "nested_path", "nested_list_path",
    "list_of_dicts_path", "model_path", "list_of_lists_path", "path_str", "input_like", "deep",
]  # fmt: skip
FAIL = [
    "tuple_keys", "range", "date", "time", "timedelta", "bytes", "bytearray", "decimal", "fraction",
    "uuid", "complex", "nan", "infinity", "nested_nan", "surrogate", "object", "function", "class",
]  # fmt: skip


@pytest.mark.parametrize("kind_of_output", SUCCEED)
def test_succeeds(compare, kind_of_output):
    reply = compare("outputs", lambda server: server.predict({"kind": kind_of_output}))
    assert reply.json["status"] == "succeeded", reply.json


@pytest.mark.parametrize("kind_of_output", FAIL)
def test_fails(serve, kind_of_output):
    reply = serve("outputs").predict({"kind": kind_of_output})
    assert (reply.status, reply.json["status"]) == (200, "failed")
    assert reply.json["error"].startswith("Prediction failed: ")


@pytest.mark.parametrize("kind_of_output", ["map", "iterator", "stringio"])
def test_outputs_that_only_tidegate_supports(serve, kind_of_output):
    server = serve("outputs")
    # Deliberate difference: an iterator is a list to come, and a text file in memory is a file.
    assert server.predict({"kind": kind_of_output}).json["status"] == (
        "failed" if server.is_cog else "succeeded"
    )


@pytest.mark.parametrize("kind_of_output", ["missing_path", "directory"])
def test_a_path_without_a_file(serve, kind_of_output):
    server = serve("outputs")
    body = server.predict({"kind": kind_of_output}).json
    # Deliberate difference: Cog succeeds with null; on tidegate a missing output file is a failure.
    assert (body["status"], body.get("output")) == (
        ("succeeded", None) if server.is_cog else ("failed", None)
    )


def test_secret_output(serve):
    server = serve("outputs")
    body = server.predict({"kind": "secret"}).json
    # Deliberate difference: Cog leaks the value.
    assert ("shh" in str(body.get("output"))) == server.is_cog


def test_files_are_data_uris(serve):
    assert serve("outputs").predict({"kind": "path_png"}).json["output"] == "data:image/png;base64,iVBORw=="


@pytest.mark.kinds("cog", "tidegate", "tidegate+cog")
def test_files_in_the_stream_are_data_uris(serve):
    output = serve("outputs").predict({"kind": "generator_of_paths"}).json["output"]
    assert output == ["data:text/plain;base64,eA=="] * 2


class TestUpload:
    """With --upload-url."""

    @pytest.fixture
    def folder(self, receiver):
        path = receiver.path()
        receiver.plan(path, 200)
        return path

    @pytest.fixture
    def server(self, serve_fresh, receiver, folder):
        return serve_fresh("outputs", flags=("--upload-url", receiver.url + folder))

    def test_one_file(self, server, receiver, folder):
        output = server.predict({"kind": "path_png"}, id="up").json["output"]
        request = receiver.wait(folder)[0]
        assert (request.method, request.path, request.body) == ("PUT", f"{folder}/pic.png", b"\x89PNG")
        assert request.headers["content-type"] == "image/png"
        assert request.headers["x-prediction-id"] == "up"
        assert output == f"{receiver.url}{folder}/pic.png"

    def test_several_files(self, server, receiver, folder):
        output = server.predict({"kind": "paths"}).json["output"]
        expected = [f"{receiver.url}{folder}/{name}.txt" for name in "abc"]
        # Deliberate difference: Cog's uploads land in completion order; ours keep the list's order.
        assert (sorted(output) if server.is_cog else output) == expected

    def test_nested_files(self, server, receiver, folder):
        output = server.predict({"kind": "nested_path"}).json["output"]
        # Deliberate difference: Cog uploads only top-level files; nested ones stay data URIs.
        inline, uploaded = "data:text/plain;base64,Y29udGVudA==", f"{receiver.url}{folder}/out.txt"
        assert output["file"] == (inline if server.is_cog else uploaded)

    def test_location_header_names_the_file(self, server, receiver, folder):
        receiver.plan(folder, 201, headers={"Location": "http://cdn.invalid/final.png?signature=secret"})
        assert server.predict({"kind": "path_png"}).json["output"] == "http://cdn.invalid/final.png"

    def test_a_refused_upload_fails_the_prediction(self, server, receiver, folder):
        receiver.plan(folder, 500)
        body = server.predict({"kind": "path_png"}).json
        assert body["status"] == "failed"
        assert body["error"] == "Failed to upload output: upload returned status 500 Internal Server Error"

"""File outputs keep their order, nested ones are uploaded, missing ones are failures."""

import contextlib
import threading

import pytest


@pytest.fixture
def folder(receiver):
    path = receiver.path()
    receiver.plan(path, 200)
    return path


@pytest.fixture
def server(start_server, receiver, folder):
    return start_server("outputs", "--upload-url", receiver.url + folder)


def test_outputs_keep_their_order_when_uploads_finish_out_of_order(server, receiver, folder):
    release = threading.Event()
    receiver.plan(f"{folder}/a.txt", 200, hold=release)
    with server.in_background({"kind": "paths"}) as job:
        receiver.wait(folder, 1)
        with contextlib.suppress(AssertionError):  # uploads one after the other would be in order too
            receiver.wait(folder, 3, timeout=1)
        release.set()
        output = job.reply().json["output"]
    assert output == [f"{receiver.url}{folder}/{name}.txt" for name in "abc"]


@pytest.mark.parametrize(
    ("kind_of_output", "expected"),
    [
        ("nested_path", {"file": "out.txt", "n": 1}),
        ("nested_list_path", {"files": ["a.txt", "b.txt"]}),
        ("list_of_dicts_path", [{"file": "out.txt"}]),
        ("model_path", {"file": "out.txt", "name": "n"}),
        ("list_of_lists_path", [["out.txt"]]),
    ],
)
def test_nested_files_are_uploaded(server, receiver, folder, kind_of_output, expected):
    output = server.predict({"kind": kind_of_output}).json["output"]
    assert _without_prefix(output, f"{receiver.url}{folder}/") == expected


def _without_prefix(value, prefix):
    if isinstance(value, dict):
        return {key: _without_prefix(item, prefix) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_prefix(item, prefix) for item in value]
    return value.removeprefix(prefix) if isinstance(value, str) else value


@pytest.mark.parametrize("kind_of_output", ["missing_path", "nested_missing_path"])
def test_a_missing_file_is_a_failure_that_names_it(shared_server, kind_of_output):
    body = shared_server("outputs").predict({"kind": kind_of_output}).json
    assert body["status"] == "failed"
    assert "/nonexistent/file.txt" in body["error"]


def test_a_directory_is_a_failure(shared_server):
    assert shared_server("outputs").predict({"kind": "directory"}).json["status"] == "failed"

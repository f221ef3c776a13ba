"""Client ids are safe text; generated ids cannot be guessed."""

import os
from os.path import commonpath
from urllib.parse import quote

import pytest

GOOD = ["a", "a b", "ünïcode", "a.b", "...", "-", "x" * 128, "%41", "a:b*?<>|\"'", "é" * 64]
BAD = [
    "",
    ".",
    "..",
    "a/b",
    "/",
    "../x",
    "a\\b",
    "a\nb",
    "a\tb",
    "a\x00b",
    "a\x7fb",
    "\u0085",
    "x" * 129,
    "é" * 65,
]


@pytest.mark.parametrize("id", GOOD, ids=ascii)
def test_good_ids(shared_server, id):
    reply = shared_server("echo").predict(id=id)
    assert (reply.status, reply.json["id"]) == (200, id)


@pytest.mark.parametrize("id", BAD, ids=ascii)
def test_bad_ids(shared_server, id):
    reply = shared_server("echo").post("/predictions", {"id": id, "input": {}})
    assert reply.status == 422
    assert reply.detail[0]["loc"] == ["body", "id"]


@pytest.mark.parametrize("id", [id for id in BAD if id not in ("", ".", "..")], ids=ascii)
def test_bad_ids_in_the_url(shared_server, id):
    # A raw socket's worth of care: `requests` would normalise dots, so these two are left out.
    assert shared_server("echo").put(f"/predictions/{quote(id, safe='')}", {"input": {}}).status == 422


@pytest.mark.parametrize("id", ["u b", "ünïcode-url", "100%"])
def test_good_ids_in_the_url(shared_server, id):
    reply = shared_server("echo").put(f"/predictions/{quote(id, safe='')}", {"input": {}})
    assert (reply.status, reply.json["id"]) == (200, id)


def test_generated_ids_have_96_random_bits(shared_server):
    server = shared_server("echo")
    ids = [server.predict().json["id"] for _ in range(100)]
    fixed = commonpath(ids)
    assert len(set(ids)) == 100
    # Each character carries at most 6 bits (base64), and a hex digit only 4.
    alphabet = set("".join(id[len(fixed) :] for id in ids)) - {"-"}
    bits = (len(alphabet) - 1).bit_length()
    assert (len(ids[0].replace("-", "")) - len(fixed)) * bits >= 96


def test_an_id_is_never_a_file_name(start_server, tmp_path, gate):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    server = start_server("files_in", env={"TMPDIR": str(scratch)})
    input = {"path": "data:text/plain;base64,aGVsbG8=", "gate": str(gate)}
    server.start(input, id="telltale")
    server.wait_health("BUSY")
    names = [name for root in (scratch, "/tmp") for name in _names_below(root)]
    assert [name for name in names if "telltale" in name] == []


def _names_below(root, depth=3):
    """Names of files and folders, not deeper than `depth`."""
    for folder, folders, files in os.walk(root):
        yield from folders + files
        if "coglet" in folders:
            folders.remove("coglet")  # the real Cog's: it leaves a folder for every prediction it ever ran
        if folder[len(str(root)) :].count("/") >= depth:
            folders.clear()


def test_a_running_id_is_not_accepted_twice(start_server, gate):
    server = start_server("concurrent")
    server.start({"gate": str(gate)}, id="mine")
    again = server.post("/predictions", {"id": "mine", "input": {}})
    assert (again.status, "`mine`" in again.json["error"]) == (409, True)

"""Rows D6 to D8 of docs/reliability.md: ids that are paths, very long, or unusual."""

import json
from urllib.parse import quote

import pytest
from baseline import assert_refused
from raw_http import exchange, json_request
from waiting import wait_until

PATHS = [
    "../x",
    "../../../../tmp/escaped",
    "a/../b",
    "/tmp/escaped",
    "/etc/passwd",
    "a/b",
    "..\\x",
    "C:\\x",
    "//x",
]
LENGTHS = {
    "129 bytes": "x" * 129,
    "256 bytes": "x" * 256,
    "300 bytes": "x" * 300,
    "300 bytes in 100 letters": "水" * 100,
    "64 KiB": "x" * 65536,
    "1 MiB": "x" * 2**20,
}
ODD = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "CR LF": "a\r\nset-cookie: b=c",
    "a line feed": "a\nb",
    "a tab": "a\tb",
    "NUL": "a\0b",
    "NUL first": "\0",
    "escape": "\x1b[31mred",
    "delete": "a\x7f",
    "C1": "a\x9bb",
}
#: "Handled" is as good as refused, as long as it is the same id everywhere and never a file.
UNUSUAL = {
    "right to left": "abc\u202egpj.exe",
    "right to left letters": "שלום",
    "zero width": "a\u200bb",
    "line separator": "a\u2028b",
    "a byte order mark": "\ufeffa",
    "combining": "e\u0301",
    "wide dots": "\uff0e\uff0e",
    "emoji": "💧" * 32,
    "a space": " ",
    "an option": "--help",
    "home": "~root",
    "a variable": "$HOME",
    "a command": "`id`",
    "SQL": "'; DROP TABLE jobs; --",
    "a template": "{{7*7}}",
    "a format": "%s%n%x",
    "a percent sign": "%2e%2e%2f",
    "a star": "*",
    "markup": "<script>",
    "null": "null",
}


def both_ways(server, id):
    """The id in the body of a POST, and in the path of a PUT when it can stand there."""
    yield exchange(server, json_request({"id": id, "input": {"nonce": "never"}}))
    if id and len(id) < 1000:
        target = f"/predictions/{quote(id, safe='')}"
        yield exchange(server, json_request({"input": {"nonce": "never"}}, method="PUT", target=target))


@pytest.mark.parametrize("id", PATHS)
def test_an_id_that_is_a_path_is_refused_without_file_access(baseline, id):
    for reply in both_ways(baseline.server, id):
        assert_refused(reply, 422)
    baseline.check()


@pytest.mark.parametrize(
    "target",
    [
        "/predictions/..%2fescaped",
        "/predictions/%2e%2e%2fescaped",
        "/predictions/a%2Fb",
        "/predictions/a%5cb",
        "/predictions/%00",
        "/predictions/a%00b",
        "/predictions/a%0d%0ab",
        "/predictions/../../escaped",
        "/predictions/..",
        "/predictions/%2e%2e",
        "/predictions/.",
        "/predictions/",
        "/predictions//",
        "/predictions/a/b",
        "/predictions/%ff",
        "/predictions/%ed%a0%80",
        "/predictions/%c0%ae%c0%ae",
        "/predictions/a%00/cancel",
        "/predictions/..%2f..%2f/cancel",
    ],
)
@pytest.mark.parametrize("method", ["PUT", "GET", "POST"])
def test_an_id_in_the_url_cannot_traverse_paths(baseline, method, target):
    body = b"" if method == "GET" else b'{"input":{"nonce":"never"}}'
    reply = exchange(baseline.server, json_request(body, method=method, target=target))
    if reply.status == 404 and target.endswith("/cancel"):
        assert reply.json == {}  # the Cog API's response for an id that is not running
    else:
        assert_refused(reply)
    baseline.check()


def test_ids_are_never_file_names(start_server, tmp_path, gate):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    server = start_server("journal", env={"TMPDIR": str(scratch)})
    for number, id in enumerate(["telltale", "~telltale", "telltale*", "-telltale", "...telltale"]):
        server.predict({"path": "data:text/plain,hello"}, id=f"{id}{number}")
    server.start({"path": "data:text/plain,hello", "gate": str(gate)}, id="telltale-running")
    found = [
        path for top in (scratch, server.directory) for path in top.rglob("*") if "telltale" in path.name
    ]
    assert found == []


@pytest.mark.parametrize("name", LENGTHS)
def test_a_long_id_is_refused_and_takes_no_slot(baseline, name):
    for reply in both_ways(baseline.server, LENGTHS[name]):
        assert_refused(reply, 414, 422)
        assert len(reply.body) < 4096, "the answer must not repeat a bomb"
    baseline.check()


def test_an_id_of_300_bytes_is_refused_and_takes_no_slot(baseline):
    """In Cog one such request is the end: the slot is never free again."""
    for _ in range(10):
        for reply in both_ways(baseline.server, "x" * 300):
            assert_refused(reply, 422)
    baseline.check()


def test_a_long_id_can_be_neither_looked_up_nor_canceled(baseline):
    long = "x" * 10_000
    assert (
        exchange(baseline.server, json_request(b"", method="GET", target=f"/predictions/{long}")).status
        == 404
    )
    assert exchange(baseline.server, json_request(b"", target=f"/predictions/{long}/cancel")).status == 404
    baseline.check()


@pytest.mark.parametrize("name", ODD)
def test_an_invalid_id_is_refused(baseline, name):
    for reply in both_ways(baseline.server, ODD[name]):
        # `.` and `..` in a path mean another path.
        assert_refused(reply, 404, 405, 422) if ODD[name] in (".", "..") else assert_refused(reply, 422)
    baseline.check()


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_id_is_refused_or_returned_unchanged(baseline, name):
    server, id = baseline.server, UNUSUAL[name]
    reply = exchange(server, json_request({"id": id, "input": {"nonce": id}}))
    if reply.status != 200:
        assert_refused(reply, 422)
        return
    assert (reply.json["id"], reply.json["output"]) == (id, id)
    target = f"/predictions/{quote(id, safe='')}"
    assert exchange(server, json_request(b"", method="GET", target=target)).json["id"] == id
    assert (
        json.loads(
            exchange(server, json_request({"input": {"nonce": id}}, method="PUT", target=target)).body
        )["id"]
        == id
    )
    baseline.assert_slots()


def test_ids_that_look_alike_are_different_jobs(shared_server):
    server = shared_server("journal")
    for id in ("é", "e\u0301", "a", "A", "a ", "a\u200b"):
        reply = server.predict({"nonce": id.encode().hex()}, id=id)
        if reply.status == 200:
            wait_until(
                lambda id=id: server.get(f"/predictions/{quote(id)}").status == 200, "the job to be found"
            )
            assert server.get(f"/predictions/{quote(id)}").json["output"] == id.encode().hex()
        else:
            assert_refused(reply, 422)

"""Rows D14 to D17 of docs/reliability.md: input files that are bombs, local files, or endless."""

import base64
import gzip
import time

import hostile_servers
import pytest
from baseline import MIB, Baseline, assert_refused, read_journal
from http_client import wait_for_end
from private_addresses import PRIVATE_HOSTS, name_of_this_machine
from processes import peak_memory, resident_memory
from raw_http import RawConnection, exchange, json_request
from waiting import wait_until

BROKEN_BASE64 = {
    "letters outside": "data:text/plain;base64,!!!!",
    "a wrong length": "data:text/plain;base64,abcde",
    "padding inside": "data:text/plain;base64,ab==cdef",
    "only padding": "data:text/plain;base64,====",
    "no UTF-8 escape": "data:text/plain;base64,%ff%fe",
    "no comma": "data:text/plain;base64",
    "nothing": "data:",
}

LOCAL_FILES = [
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "file:/etc/passwd",
    "FILE:///etc/passwd",
    "/etc/passwd",
    "/proc/self/environ",
    "../../../../etc/passwd",
    "./predict.py",
    "predict.py",
    "~/.ssh/id_rsa",
    "\\\\host\\share",
    "",
    " /etc/passwd",
    "\tfile:///etc/passwd",
]

OTHER_SCHEMES = [
    "ftp://example.com/x",
    "gopher://example.com/x",
    "dict://example.com/x",
    "ldap://example.com/x",
    "jar:http://example.com/x!/y",
    "s3://bucket/x",
    "javascript:alert(1)",
    "blob:http://example.com/x",
    "http://",
    "http://exa mple.com/",
    "http://example.com:99999/",
    "http://[::1/",
    "//example.com/x",
]


def refuse(baseline, input, field="path"):
    """A file input that is refused before anything runs, with the name of the field."""
    body = {"input": input | {"nonce": "never"}, "webhook": baseline.webhook}
    reply = exchange(baseline.server, json_request(body))
    assert_refused(reply, 422)
    body, input_, place, *_ = [*reply.detail[0]["loc"], ""]
    assert (body, input_, place.partition("/")[0]) == ("body", "input", field), str(reply)
    baseline.check()
    return reply


@pytest.mark.parametrize("name", BROKEN_BASE64)
def test_broken_base64_is_refused(baseline, name):
    refuse(baseline, {"path": BROKEN_BASE64[name]})


def test_one_broken_file_in_a_list_is_refused(baseline):
    refuse(baseline, {"paths": ["data:text/plain,fine", BROKEN_BASE64["letters outside"]]}, "paths")


@pytest.mark.parametrize("coding", ["base64", "percent"])
def test_a_data_uri_over_the_limit_is_refused_before_it_is_decoded(start_server, receiver, tmp_path, coding):
    server = start_server("journal", "--max-file", "1MiB")
    proof = Baseline(server, receiver, tmp_path)
    text = base64.b64encode(bytes(2 * MIB)).decode() if coding == "base64" else "%00" * 2 * MIB
    refuse(proof, {"path": f"data:application/octet-stream{';base64' * (coding == 'base64')},{text}"})


def test_the_memory_for_a_data_uri_of_24_mib_is_bounded(start_server, receiver, tmp_path):
    """It is not copied again and again."""
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    before = resident_memory(server.process.pid)
    text = base64.b64encode(bytes(24 * MIB)).decode()
    reply = server.predict({"nonce": "big", "path": f"data:;base64,{text}"}, timeout=30)
    assert (reply.status, reply.json.get("output")) == (200, "big"), str(reply)
    assert peak_memory(server.process.pid) - before < 200 * MIB
    proof.assert_not_grown(128 * MIB)
    proof.assert_slots()


def test_a_compressed_bomb_is_not_unpacked(baseline):
    """Nothing unpacks what a caller sends: 64 MiB in 64 KiB arrive as 64 KiB."""
    bomb = base64.b64encode(gzip.compress(bytes(64 * MIB))).decode()
    before = resident_memory(baseline.server.process.pid)
    assert (
        baseline.server.predict({"nonce": "packed", "path": f"data:application/gzip;base64,{bomb}"}).status
        == 200
    )
    assert resident_memory(baseline.server.process.pid) - before < 32 * MIB


@pytest.mark.parametrize("value", LOCAL_FILES, ids=ascii)
def test_a_local_file_is_refused(baseline, value):
    reply = refuse(baseline, {"path": value})
    assert "root:" not in reply.body.decode()


@pytest.mark.parametrize("value", OTHER_SCHEMES)
def test_another_scheme_is_refused(baseline, value):
    refuse(baseline, {"path": value})


def test_a_local_file_in_a_list_is_refused(baseline):
    refuse(baseline, {"paths": ["data:text/plain,fine", "/etc/passwd"]}, "paths")


@pytest.fixture(scope="module")
def secret_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("secrets") / "secret.txt"
    path.write_text("planted-secret-of-this-machine")
    return path


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "file:{}", "data:,x/../{}", "/proc/self/root{}"])
def test_local_files_are_never_returned(shared_server, secret_file, spelling):
    reply = shared_server("files_in").predict({"path": spelling.format(secret_file)})
    assert "planted-secret" not in reply.body.decode()


@pytest.fixture
def guarded_unhurt(start_guarded_server, receiver, tmp_path):
    return Baseline(start_guarded_server("journal"), receiver, tmp_path)


def test_every_spelling_of_a_private_address_is_refused(guarded_unhurt):
    for host in PRIVATE_HOSTS:
        body = {"input": {"nonce": "never", "path": f"http://{host}/latest/meta-data"}}
        reply = exchange(guarded_unhurt.server, json_request(body))
        assert reply.status == 422, (host, str(reply))
        assert_refused(reply)
    guarded_unhurt.check()


def test_a_host_name_of_a_private_address_fails_the_job_without_a_request(guarded_unhurt):
    with hostile_servers.hostile_server(hostile_servers.hangs) as hostile:
        url = f"http://{name_of_this_machine()}:{hostile.url.rpartition(':')[2]}/secret"
        reply = guarded_unhurt.server.predict({"nonce": "named", "path": url})
        assert reply.status == 422 or reply.json["status"] == "failed", str(reply)
        assert hostile.requests == 0
    assert "begin named" not in read_journal(guarded_unhurt.server)
    guarded_unhurt.assert_slots()


def test_a_redirect_to_a_private_address_is_not_followed(start_server, receiver, tmp_path):
    """127.0.0.1 is open in this server, the rest is not."""
    server = start_server("journal")
    for target in ("http://169.254.169.254/", "http://10.0.0.1/", "http://[::1]:1/", "file:///etc/passwd"):
        with hostile_servers.hostile_server(hostile_servers.redirects_to(target)) as hostile:
            body = server.predict({"nonce": "redirected", "path": hostile.url + "/x"}).json
        assert body["status"] == "failed", body
        assert "root:" not in str(body)
    assert "begin redirected" not in read_journal(server)
    Baseline(server, receiver, tmp_path).assert_slots()


def test_endless_redirects_fail_the_job(start_server, receiver, tmp_path):
    server, path = start_server("journal"), receiver.path()
    url = receiver.plan(path, 302, headers={"Location": receiver.url + path})
    body = server.predict({"nonce": "circle", "path": url}).json
    assert body["status"] == "failed", body
    assert len(receiver.received(path)) <= 6
    Baseline(server, receiver, tmp_path).assert_slots()


@pytest.mark.parametrize(
    "behaviour", [hostile_servers.endless_body, hostile_servers.huge_body], ids=lambda b: b.__name__
)
def test_an_endless_download_stops_at_the_size_limit(start_server, receiver, tmp_path, behaviour):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    server = start_server("journal", "--max-file", "20MiB", env={"TMPDIR": str(scratch)})
    proof = Baseline(server, receiver, tmp_path)
    with hostile_servers.hostile_server(behaviour) as hostile:
        body = server.predict({"nonce": "endless", "path": hostile.url + "/x"}).json
    assert body["status"] == "failed", body
    left = [path for path in scratch.rglob("*") if path.is_file() and path.name != ".lock"]
    assert left == []
    proof.check()


@pytest.mark.parametrize(
    "behaviour",
    [
        hostile_servers.hangs_up,
        hostile_servers.sends_garbage,
        hostile_servers.endless_headers,
        hostile_servers.short_body,
    ],
    ids=lambda b: b.__name__,
)
def test_a_broken_download_fails_only_its_job(start_server, receiver, tmp_path, behaviour):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    with hostile_servers.hostile_server(behaviour) as hostile:
        body = server.predict({"nonce": "wrong", "path": hostile.url + "/x"}).json
    assert body["status"] == "failed", body
    assert "path" in body["error"] or "x" in body["error"]
    proof.check()


# Slow on purpose: the limits are 10 s without a byte, and they are not for tests to change.
@pytest.mark.parametrize(
    "behaviour", [hostile_servers.hangs, hostile_servers.stalls_in_body], ids=lambda b: b.__name__
)
def test_a_stalled_download_times_out(start_server, receiver, tmp_path, behaviour):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    with hostile_servers.hostile_server(behaviour) as hostile:
        body = server.predict({"nonce": "stalls", "path": hostile.url + "/x"}, timeout=40).json
    assert body["status"] == "failed", body
    proof.check()


@pytest.mark.parametrize(
    "behaviour", [hostile_servers.slow_body, hostile_servers.hangs], ids=lambda b: b.__name__
)
def test_a_slow_download_counts_toward_the_deadline(start_server, receiver, tmp_path, behaviour):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    began = time.monotonic()
    with hostile_servers.hostile_server(behaviour) as hostile:
        id = server.start({"nonce": "slow", "path": hostile.url + "/x"}, headers={"Cancel-After": "1s"}).json[
            "id"
        ]
        assert wait_for_end(server, id)["status"] == "canceled"
    assert time.monotonic() - began < 8
    proof.check()


def test_a_client_that_disconnects_stops_the_download(start_server, receiver, tmp_path):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    with hostile_servers.hostile_server(hostile_servers.slow_body) as hostile:
        with RawConnection(server) as connection:
            body = {"input": {"path": hostile.url + "/x"}}
            connection.send(json_request(body, method="PUT", target="/predictions/left"))
            wait_until(lambda: hostile.requests, "the download to begin")
        assert wait_for_end(server, "left")["status"] == "canceled"
    proof.check()

"""D14 to D17: files of the input that are bombs, secrets of this machine, or never end."""

import base64
import gzip
import time

import hostile_servers
import pytest
from baseline import MIB, Unhurt, assert_refused, ended, journal, memory, peak_memory
from private_addresses import PRIVATE_HOSTS, name_of_this_machine
from raw_connection import Wire, ask, request
from servers import wait_until

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


def refuse(unhurt, input, field="path"):
    """A file input that is refused before anything runs, with the name of the field."""
    body = {"input": input | {"nonce": "never"}, "webhook": unhurt.webhook}
    reply = ask(unhurt.server, request(body))
    assert_refused(reply, 422)
    body, input_, place, *_ = [*reply.detail[0]["loc"], ""]
    assert (body, input_, place.partition("/")[0]) == ("body", "input", field), str(reply)
    unhurt.check()
    return reply


@pytest.mark.parametrize("name", BROKEN_BASE64)
def test_d14_broken_base64_is_refused(unhurt, name):
    refuse(unhurt, {"path": BROKEN_BASE64[name]})


def test_d14_one_broken_file_in_a_list_is_refused(unhurt):
    refuse(unhurt, {"paths": ["data:text/plain,fine", BROKEN_BASE64["letters outside"]]}, "paths")


@pytest.mark.parametrize("coding", ["base64", "percent"])
def test_d14_a_data_uri_over_the_limit_is_refused_before_it_is_decoded(fresh, receiver, tmp_path, coding):
    server = fresh("journal", "--max-file", "1MiB")
    proof = Unhurt(server, receiver, tmp_path)
    text = base64.b64encode(bytes(2 * MIB)).decode() if coding == "base64" else "%00" * 2 * MIB
    refuse(proof, {"path": f"data:application/octet-stream{';base64' * (coding == 'base64')},{text}"})


def test_d14_a_data_uri_of_24_mib_costs_a_bounded_multiple(fresh, receiver, tmp_path):
    """It is not copied again and again."""
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    before = memory(server.process.pid)
    text = base64.b64encode(bytes(24 * MIB)).decode()
    reply = server.predict({"nonce": "big", "path": f"data:;base64,{text}"}, timeout=30)
    assert (reply.status, reply.json.get("output")) == (200, "big"), str(reply)
    assert peak_memory(server.process.pid) - before < 200 * MIB
    proof.assert_not_grown(128 * MIB)
    proof.assert_slots()


def test_d14_a_packed_bomb_stays_packed(unhurt):
    """Nothing unpacks what a caller sends: 64 MiB in 64 KiB arrive as 64 KiB."""
    bomb = base64.b64encode(gzip.compress(bytes(64 * MIB))).decode()
    before = memory(unhurt.server.process.pid)
    assert (
        unhurt.server.predict({"nonce": "packed", "path": f"data:application/gzip;base64,{bomb}"}).status
        == 200
    )
    assert memory(unhurt.server.process.pid) - before < 32 * MIB


@pytest.mark.parametrize("value", LOCAL_FILES, ids=ascii)
def test_d15_a_local_file_is_refused(unhurt, value):
    reply = refuse(unhurt, {"path": value})
    assert "root:" not in reply.body.decode()


@pytest.mark.parametrize("value", OTHER_SCHEMES)
def test_d15_another_scheme_is_refused(unhurt, value):
    refuse(unhurt, {"path": value})


def test_d15_a_local_file_in_a_list_is_refused(unhurt):
    refuse(unhurt, {"paths": ["data:text/plain,fine", "/etc/passwd"]}, "paths")


@pytest.fixture(scope="module")
def secret_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("secrets") / "secret.txt"
    path.write_text("planted-secret-of-this-machine")
    return path


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "file:{}", "data:,x/../{}", "/proc/self/root{}"])
def test_d15_what_is_on_this_machine_never_comes_back(shared, secret_file, spelling):
    reply = shared("files_in").predict({"path": spelling.format(secret_file)})
    assert "planted-secret" not in reply.body.decode()


@pytest.fixture
def guarded_unhurt(guarded, receiver, tmp_path):
    return Unhurt(guarded("journal"), receiver, tmp_path)


def test_d16_a_private_address_is_refused_in_every_spelling(guarded_unhurt):
    for host in PRIVATE_HOSTS:
        body = {"input": {"nonce": "never", "path": f"http://{host}/latest/meta-data"}}
        reply = ask(guarded_unhurt.server, request(body))
        assert reply.status == 422, (host, str(reply))
        assert_refused(reply)
    guarded_unhurt.check()


def test_d16_a_name_of_a_private_address_fails_and_is_not_called(guarded_unhurt):
    with hostile_servers.trap(hostile_servers.hangs) as trap:
        url = f"http://{name_of_this_machine()}:{trap.url.rpartition(':')[2]}/secret"
        reply = guarded_unhurt.server.predict({"nonce": "named", "path": url})
        assert reply.status == 422 or reply.json["status"] == "failed", str(reply)
        assert trap.calls == 0
    assert "begin named" not in journal(guarded_unhurt.server)
    guarded_unhurt.assert_slots()


def test_d16_a_redirect_to_a_private_address_is_not_followed(fresh, receiver, tmp_path):
    """127.0.0.1 is open in this server, the rest is not."""
    server = fresh("journal")
    for target in ("http://169.254.169.254/", "http://10.0.0.1/", "http://[::1]:1/", "file:///etc/passwd"):
        with hostile_servers.trap(hostile_servers.redirects_to(target)) as trap:
            body = server.predict({"nonce": "redirected", "path": trap.url + "/x"}).json
        assert body["status"] == "failed", body
        assert "root:" not in str(body)
    assert "begin redirected" not in journal(server)
    Unhurt(server, receiver, tmp_path).assert_slots()


def test_d16_redirects_without_end_are_given_up(fresh, receiver, tmp_path):
    server, path = fresh("journal"), receiver.path()
    url = receiver.plan(path, 302, headers={"Location": receiver.url + path})
    body = server.predict({"nonce": "circle", "path": url}).json
    assert body["status"] == "failed", body
    assert len(receiver.received(path)) <= 6
    Unhurt(server, receiver, tmp_path).assert_slots()


@pytest.mark.parametrize(
    "behaviour", [hostile_servers.endless_body, hostile_servers.huge_body], ids=lambda b: b.__name__
)
def test_d17_a_download_that_never_ends_is_cut_at_the_limit(fresh, receiver, tmp_path, behaviour):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    server = fresh("journal", "--max-file", "20MiB", env={"TMPDIR": str(scratch)})
    proof = Unhurt(server, receiver, tmp_path)
    with hostile_servers.trap(behaviour) as trap:
        body = server.predict({"nonce": "endless", "path": trap.url + "/x"}).json
    assert body["status"] == "failed", body
    left = [path for path in scratch.rglob("*") if path.is_file() and path.name != ".lock"]
    assert left == []
    proof.check()


@pytest.mark.parametrize(
    "behaviour",
    [
        hostile_servers.hangs_up,
        hostile_servers.talks_nonsense,
        hostile_servers.endless_headers,
        hostile_servers.short_body,
    ],
    ids=lambda b: b.__name__,
)
def test_d17_a_download_that_goes_wrong_fails_the_job_and_nothing_else(fresh, receiver, tmp_path, behaviour):
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    with hostile_servers.trap(behaviour) as trap:
        body = server.predict({"nonce": "wrong", "path": trap.url + "/x"}).json
    assert body["status"] == "failed", body
    assert "path" in body["error"] or "x" in body["error"]
    proof.check()


# Slow on purpose: the limits are 10 s without a byte, and they are not for tests to change.
@pytest.mark.parametrize(
    "behaviour", [hostile_servers.hangs, hostile_servers.stalls_in_the_body], ids=lambda b: b.__name__
)
def test_d17_a_download_that_stalls_is_given_up(fresh, receiver, tmp_path, behaviour):
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    with hostile_servers.trap(behaviour) as trap:
        body = server.predict({"nonce": "stalls", "path": trap.url + "/x"}, timeout=40).json
    assert body["status"] == "failed", body
    proof.check()


@pytest.mark.parametrize(
    "behaviour", [hostile_servers.slow_body, hostile_servers.hangs], ids=lambda b: b.__name__
)
def test_d17_a_slow_download_counts_in_the_deadline(fresh, receiver, tmp_path, behaviour):
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    began = time.monotonic()
    with hostile_servers.trap(behaviour) as trap:
        id = server.start({"nonce": "slow", "path": trap.url + "/x"}, headers={"Cancel-After": "1s"}).json[
            "id"
        ]
        assert ended(server, id)["status"] == "canceled"
    assert time.monotonic() - began < 8
    proof.check()


def test_d17_a_caller_that_leaves_ends_the_download(fresh, receiver, tmp_path):
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    with hostile_servers.trap(hostile_servers.slow_body) as trap:
        with Wire(server) as wire:
            body = {"input": {"path": trap.url + "/x"}}
            wire.send(request(body, method="PUT", target="/predictions/left"))
            wait_until(lambda: trap.calls, "the download to begin")
        assert ended(server, "left")["status"] == "canceled"
    proof.check()

"""The server calls public addresses only, unless it is configured otherwise."""

import base64
import socket
import subprocess
import threading

import pytest
from environment import tidegate_bin, tidegate_env
from waiting import wait_until

CLOSED = {"TIDEGATE_ALLOW_PRIVATE_NETWORKS": ""}

PRIVATE_HOSTS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0.0.0.0",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[fd00::1]",
    "[fe80::1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
]


@pytest.fixture(scope="module")
def port(receiver):
    return receiver.url.rpartition(":")[2]


@pytest.fixture
def closed(server_pool):
    """One server for all tests of a name; nothing private is open to it."""
    return lambda model: server_pool.fresh("tidegate", model, env=CLOSED)


def test_private_webhooks_and_inputs_are_refused_at_submission(closed, receiver, port):
    server = closed("files_in")
    for host in PRIVATE_HOSTS:
        path = receiver.path("/private")
        reply = server.predict(webhook=f"http://{host}:{port}{path}")
        assert (reply.status, reply.detail[0]["loc"]) == (422, ["body", "webhook"]), f"{host}: {reply}"
        for field, value in (("path", "URL"), ("files", ["data:,x", "URL"])):
            url = f"http://{host}:{port}{path}"
            value = url if value == "URL" else [value[0], url]
            reply = server.predict({field: value})
            assert (reply.status, reply.detail[0]["loc"][:2]) == (422, ["body", "input"]), f"{host}: {reply}"
        assert receiver.received(path) == []


def test_a_host_name_of_a_private_address_fails_the_job_without_a_request(closed, receiver, port):
    server, path = closed("files_in"), receiver.path()
    name = socket.gethostname()
    assert socket.gethostbyname(name).startswith("127."), "this machine's name must lead to itself"
    reply = server.predict({"path": f"http://{name}:{port}{path}"})
    assert reply.json["status"] == "failed"
    assert "not a public address" in reply.json["error"]
    assert "127." not in reply.json["error"]
    assert receiver.received(path) == []


def test_a_webhook_to_a_host_name_of_a_private_address_is_abandoned(closed, receiver, port):
    server, path = closed("echo"), receiver.path()
    url = f"http://{socket.gethostname()}:{port}{path}"
    assert server.predict(id="inside", webhook=url).json["status"] == "succeeded"

    def messages():
        found = server.get("/admin/deliveries?job=inside").json["deliveries"]
        return found if found and all(one["state"] == "failed" for one in found) else None

    for message in wait_until(messages, "every message to be abandoned"):
        assert len(message["attempts"]) == 1
    assert receiver.received(path) == []


def test_redirects_are_checked_too(start_server, receiver, port):
    server = start_server("files_in", env={"TIDEGATE_ALLOW_PRIVATE_NETWORKS": "127.0.0.1"})
    secret = receiver.file("secret.txt", b"secret")
    for target in (secret.replace("127.0.0.1", "127.0.0.2"), secret.replace("127.0.0.1", "[::1]")):
        url = receiver.plan(receiver.path(), 302, headers={"Location": target})
        reply = server.predict({"path": url})
        assert reply.json["status"] == "failed", str(reply)
    assert receiver.received(secret.removeprefix(receiver.url)) == []


def test_a_proxy_variable_does_not_bypass_the_guard(start_server, receiver):
    proxied = {name: receiver.url for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY")}
    server, path = start_server("echo", env=CLOSED | proxied), receiver.path()
    server.predict(id="proxied", webhook=f"http://{socket.gethostname()}{path}")
    wait_until(
        lambda: [
            one
            for one in server.get("/admin/deliveries?job=proxied").json["deliveries"]
            if one["event"] == "completed" and one["state"] == "failed"
        ],
        "the message to be abandoned",
    )
    # A proxy is asked for whole URLs.
    assert receiver.received("http:") == []
    assert receiver.received(path) == []


def test_allowed_private_networks_are_called(start_server, receiver):
    server, path = (
        start_server("files_in", "--allow-private-networks", "10.0.0.0/8,127.0.0.1"),
        receiver.path(),
    )
    url = receiver.file("a.txt", b"content")
    reply = server.predict({"path": url}, webhook=receiver.url + path)
    assert reply.json["output"]["path"][2] == "content"
    assert receiver.wait_terminal(path)["status"] == "succeeded"


def test_an_invalid_network_list_is_refused_at_startup(tidegate):
    ended = tidegate("serve", ".", "--allow-private-networks", "10.0.0.0/8,intranet")
    assert ended.returncode == 64
    assert "`intranet`" in ended.stderr


@pytest.mark.parametrize(
    "value",
    ["/etc/passwd", "../../etc/passwd", "file:///etc/passwd", "ftp://example.com/x", "gopher://x", "", "a:b"],
)
def test_local_files_are_refused_with_a_hint(shared_server, value):
    for field, given in (("path", value), ("files", [value])):
        reply = shared_server("files_in").predict({field: given})
        assert reply.status == 422
        assert reply.detail[0]["loc"][2].startswith(field)
        assert "@file" in reply.detail[0]["msg"]


@pytest.mark.parametrize("value", ["data:nocomma", "data:;base64,!!!", "data:text/plain;base64,aGVsbG8=="])
def test_broken_data_uris_are_refused(shared_server, value):
    reply = shared_server("files_in").predict({"path": value})
    assert (reply.status, reply.detail[0]["loc"]) == (422, ["body", "input", "path"])


def test_a_file_above_max_file_is_refused(start_server, receiver):
    server = start_server("files_in", "--max-file", "10")
    fits, too_large = b"0123456789", b"0123456789a"
    for content, ended in ((fits, "succeeded"), (too_large, "failed")):
        assert server.predict({"path": receiver.file("a.bin", content)}).json["status"] == ended
    for content, status in ((fits, 200), (too_large, 422)):
        uri = "data:;base64," + base64.b64encode(content).decode()
        assert server.predict({"path": uri}).status == status
    assert "--max-file" in server.predict({"path": receiver.file("a.bin", too_large)}).json["error"]


def test_text_inputs_are_never_fetched(shared_server):
    reply = shared_server("files_in").predict({"text": "file:///etc/passwd"})
    assert reply.json["output"] == {"text": ["str", "file:///etc/passwd"]}


def test_the_cli_sends_local_files_and_may_call_private_addresses(tmp_path, receiver, shared_server):
    server, file = shared_server("files_in"), tmp_path / "notes.txt"
    file.write_text("from a file")
    env = tidegate_env() | CLOSED
    url = receiver.file("b.txt", b"from an address")
    for target in (server.url, str(server.directory)):
        for given, expected in ((f"path=@{file}", "from a file"), (f"path={url}", "from an address")):
            ended = subprocess.run(
                [str(tidegate_bin()), "predict", target, "-i", given],
                env=env,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert (ended.returncode, expected in ended.stdout) == (0, True), ended.stderr


def test_a_hanging_download_times_out(shared_server, receiver):
    """After ten seconds without a byte."""
    release = threading.Event()
    url = receiver.plan(receiver.path("/x.bin"), hold=release)
    try:
        reply = shared_server("files_in").predict({"path": url}, timeout=14)
        assert "sent nothing for 10s" in reply.json["error"]
    finally:
        release.set()

"""Security properties that a client can observe: addresses, TLS, logs, responses, source code."""

import ast
import base64
import hashlib
import hmac
import re
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from baseline import assert_error_body
from certificates import make_certificate
from environment import ROOT, copy_model, free_port, tidegate_bin, tidegate_env
from http_client import wait_for_end
from raw_http import RawConnection, exchange, json_request
from waiting import wait_until

PLANTED = "planted-do-not-tell"


def listening_addresses(port: int) -> set[str]:
    """Addresses with a listener on this port, as the kernel writes them."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                found.add(address)
    return found


def test_the_default_address_is_loopback(tmp_path):
    directory, port = copy_model("echo", tmp_path), free_port()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [tidegate_bin(), "serve", directory, "--port", str(port)],
            env=tidegate_env(),
            stdout=log,
            stderr=log,
        )
    try:
        addresses = wait_until(lambda: listening_addresses(port), "the server to listen")
        assert addresses == {"0100007F"}  # 127.0.0.1
    finally:
        server.terminate()
        server.wait(10)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0"])
def test_listening_on_all_networks_without_tokens_is_refused(tmp_path, host):
    directory = copy_model("echo", tmp_path)
    command = [tidegate_bin(), "serve", directory, "--host", host, "--port", str(free_port())]
    wait_for_end = subprocess.run(
        command, env=tidegate_env(), capture_output=True, text=True, timeout=30, check=False
    )
    assert wait_for_end.returncode == 64, wait_for_end.stderr
    assert "--allow-anonymous" in wait_for_end.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "x")


@pytest.fixture
def secure(tmp_path, certificate):
    """The port of a server that speaks TLS."""
    directory, port = copy_model("echo", tmp_path), free_port()
    flags = ["--port", str(port), "--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [tidegate_bin(), "serve", directory, *flags], env=tidegate_env(), stdout=log, stderr=log
        )

    def ready() -> bool:
        assert server.poll() is None, (tmp_path / "log").read_text()
        return bool(listening_addresses(port))

    try:
        wait_until(ready, "the server to listen")
        yield port
    finally:
        server.terminate()
        server.wait(10)


def shake_hands(port, lowest, highest, trusted=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if trusted:
        context.load_verify_locations(trusted)
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = lowest, highest
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    return context.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_supported(secure, certificate, version):
    with shake_hands(secure, version, version, certificate[0]) as client:
        client.sendall(b"GET /health-check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_tls_below_1_2_is_refused(secure, version):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(secure, version, version)


def test_plain_http_and_garbage_on_the_tls_port_do_not_affect_others(secure, certificate):
    for noise in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(1000),
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
    ):
        with socket.create_connection(("127.0.0.1", secure), timeout=10) as client:
            try:
                client.sendall(noise)
                assert b"READY" not in client.recv(65536)
            except (ConnectionResetError, BrokenPipeError):
                pass
    test_tls_1_2_and_1_3_are_supported(secure, certificate, ssl.TLSVersion.TLSv1_3)


def test_secrets_are_not_logged_at_trace_level(start_server, receiver):
    """Secret inputs, inputs at all, outputs, authorization headers, tokens of webhooks, query strings."""
    server = start_server(
        "files_in", "--log-level", "trace", env={"WEBHOOK_AUTH_TOKEN": f"{PLANTED}-webhook"}
    )
    path = receiver.path()
    headers = {"Authorization": f"Bearer {PLANTED}-header", "Cookie": f"a={PLANTED}-cookie"}
    server.predict(
        {"secret": f"{PLANTED}-secret", "text": f"{PLANTED}-text", "path": f"data:,{PLANTED}-file"},
        headers=headers,
        webhook=f"{receiver.url}{path}?key={PLANTED}-query",
        id="secrets",
    )
    receiver.wait_terminal(path)
    bad = [{"secret": {"a": f"{PLANTED}-wrong-type"}}, {"text": [f"{PLANTED}-wrong"]}]
    for input in [*bad, {"path": f"http://u:{PLANTED}-userinfo@127.0.0.1:1/x?k={PLANTED}-download"}]:
        server.post("/predictions", {"input": input}, headers=headers)
    exchange(
        server,
        json_request(
            f'{{"input": {{"text": "{PLANTED}-cut'.encode(), **{"authorization": headers["Authorization"]}
        ),
    )
    server.get(f"/predictions/secrets?token={PLANTED}-target", headers=headers)
    server.stop()
    assert sorted(set(re.findall(PLANTED + r"[\w-]*", server.log()))) == []


def test_a_secret_input_is_masked_everywhere(shared_server, gate):
    server = shared_server("files_in")
    input = {"secret": f"{PLANTED}-shown", "gate": str(gate), "forgotten": True}
    server.start(input, id="masked-everywhere")
    shown = [server.put("/predictions/masked-everywhere", {"input": input}).body]
    gate.open()
    wait_for_end(server, "masked-everywhere")
    shown.append(server.get("/predictions/masked-everywhere").body)
    assert all(PLANTED.encode() not in body for body in shown)


def test_errors_of_the_model_reveal_no_tracebacks_and_paths(shared_server, receiver):
    server, path = shared_server("echo"), receiver.path()
    reply = server.predict({"fail": "only this"}, webhook=receiver.url + path)
    response = [
        reply.json,
        receiver.wait_terminal(path),
        server.get(f"/predictions/{reply.json['id']}").json,
    ]
    for body in response:
        # The logs are what the model prints, and then the traceback.
        assert "Traceback" in body.pop("logs")
        text = str(body)
        assert "only this" in text
        assert not re.search(r"Traceback|predict\.py|line \d+|/tmp/|site-packages", text), text


@pytest.mark.parametrize(
    "target", ["/", "/nothing", "/predictions", "/predictions/x", "/admin/x", "/.env", "/docs/x"]
)
def test_responses_reveal_no_software_and_no_paths(shared_server, target):
    reply = exchange(shared_server("echo"), json_request(b"", method="GET", target=target))
    everything = str(list(reply.headers.items())) + reply.body.decode()
    assert not re.search(r"hyper|axum|tokio|rustc|/tmp/|/root/|/home/|\.rs\b|panicked", everything), (
        everything
    )
    if reply.status >= 400:
        assert_error_body(reply.json)


def test_cross_origin_requests_get_no_permission(shared_server):
    """No CORS headers: a browser does not let other pages read answers or send JSON."""
    server = shared_server("echo")
    for method in ("OPTIONS", "GET", "POST"):
        reply = exchange(
            server,
            json_request(
                b"", method=method, origin="https://evil.example", access_control_request_method="POST"
            ),
        )
        assert [name for name in reply.headers if name.lower().startswith("access-control")] == []
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        reply = exchange(server, json_request(b'{"input":{}}', content_type=content_type))
        assert reply.status == 415, "a form of another page could send this"


def verified(headers, body, secret):
    """Standard Webhooks, from the specification: HMAC-SHA256 over `id.timestamp.body`."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")


def test_webhooks_are_signed_during_a_secret_rotation(start_server, receiver):
    old, new, other = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))
    server = start_server("echo", env={"TIDEGATE_WEBHOOK_SECRET": f"{old} {new}"})
    path = receiver.path()
    server.predict(
        {"text": "signed \u00e9"}, webhook=receiver.plan(path, 500, 200), webhook_events_filter=["completed"]
    )
    for attempt in receiver.wait(path, 2):
        assert verified(attempt.headers, attempt.body, old)
        assert verified(attempt.headers, attempt.body, new)
        assert not verified(attempt.headers, attempt.body, other)
        assert not verified(attempt.headers, attempt.body + b" ", old)
        assert abs(int(attempt.headers["webhook-timestamp"]) - time.time()) < 120
    server.stop()
    assert old not in server.log() and new not in server.log()


def python_sources():
    return [path for path in (ROOT / "python" / "tidegate").rglob("*.py")]


def calls_and_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_the_package_has_no_code_that_executes_data():
    forbidden = {"eval", "exec", "compile", "os.system", "os.popen", "pickle", "cPickle", "dill", "shelve"}
    forbidden |= {
        "cloudpickle",
        "yaml.load",
        "yaml.unsafe_load",
        "yaml.full_load",
        "subprocess",
        "jsonpickle",
    }
    found = [
        (path.name, name)
        for path in python_sources()
        for name in calls_and_imports(path)
        if name in forbidden
    ]
    # A script with a handler is the user's own code; what Runpod's package asks the driver is fixed, and the
    # one program that it lets be named is named by the operator.
    asks_the_driver = ["rp_cuda.py", "rp_gpu_fitness.py", "rp_system_fitness.py"]
    allowed = [
        ("script.py", "compile"),
        ("script.py", "exec"),
        *((name, "subprocess") for name in asks_the_driver),
    ]
    assert python_sources() and [one for one in found if one not in allowed] == []


def test_marshal_is_only_used_between_a_process_and_its_own_fork():
    users = {path.name for path in python_sources() if "marshal" in calls_and_imports(path)}
    assert users <= {"schema_fork.py"}


def test_unsafe_code_is_denied_and_only_in_the_crate_for_python():
    """The one exception is the place that empties the server's environment, which Rust calls unsafe."""
    manifest = (ROOT / "Cargo.toml").read_text()
    assert re.search(r'^unsafe_code = "(deny|forbid)"$', manifest, re.M)
    crates = [*(ROOT / "crates").glob("*/Cargo.toml"), ROOT / "python" / "Cargo.toml"]
    for crate in crates:
        assert re.search(r"^\[lints\]\nworkspace = true$", crate.read_text(), re.M), crate
    sources = [path for path in (ROOT / "crates").rglob("*.rs")]
    with_unsafe = {
        path.name for path in sources if re.search(r"\bunsafe\s*(\{|fn|impl|extern)", path.read_text())
    }
    assert with_unsafe <= {"secrets.rs"}


def test_builds_are_locked_and_dependencies_are_checked():
    assert (ROOT / "Cargo.lock").exists() and (ROOT / "deny.toml").exists()
    assert "scripts/deny.sh" in (ROOT / "Makefile").read_text()
    pins = [
        line
        for line in (ROOT / "tests" / "requirements.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert all("==" in pin for pin in pins)


def test_the_security_policy_says_how_to_report_a_vulnerability():
    text = (ROOT / "SECURITY.md").read_text().lower()
    assert "report" in text and "version" in text


def test_a_web_page_cannot_shut_the_server_down(shared_server):
    """A form or an image of another page sends GET, or POST with its own origin."""
    server = shared_server("echo")
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert ask_status(server, method) in (400, 401, 403, 404, 405)
    assert server.health()["status"] == "READY"


def ask_status(server, method):
    with RawConnection(server) as connection:
        connection.send(json_request(b"", method=method, target="/shutdown"))
        head = b""
        while b"\r\n" not in head:
            head += connection.socket.recv(4096)
        return int(head.split()[1])

"""The HTTP edge: malformed requests, slow clients, connection limits, TLS."""

import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from certificates import make_certificate
from raw_http import RawConnection, exchange_until_close, raw_request
from server_process import Server
from waiting import wait_until

MIB = 1 << 20
JSON = "content-type: application/json"
#: A request that would be answered if it were read.
SMUGGLED = raw_request(method="GET", target="/health-check")


@pytest.mark.parametrize(
    "headers",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 5"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: 5", "content-length: 5"),
        ("content-length: 5, 6",),
        ("content-length: -5",),
        ("transfer-encoding: chunked, gzip",),
        ("transfer-encoding: identity",),
        ("no colon",),
        ("content-length : 5",),
    ],
)
def test_ambiguous_framing_closes_the_connection(shared_server, headers):
    (reply,) = exchange_until_close(
        shared_server("echo"), raw_request(JSON, *headers, body=b"0\r\n\r\n" + SMUGGLED)
    )
    assert reply.status == 400
    assert reply.error
    assert reply.headers["connection"] == "close"


def test_requests_before_a_bad_one_are_answered(shared_server):
    body = b'{"input": {"text": "first"}}'
    good = raw_request(JSON, f"content-length: {len(body)}", body=body)
    first, second = exchange_until_close(
        shared_server("echo"), good + raw_request("content-length: x") + SMUGGLED
    )
    assert (first.status, first.json["output"]) == (200, "first")
    assert second.status == 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (raw_request(*(f"x-{n}: v" for n in range(150))), 431),
        (raw_request(*(f"x-{n}: v" for n in range(5000))), 431),
        (raw_request("x: " + "v" * 100_000), 431),
        (raw_request("x: " + "v" * MIB), 431),
        (raw_request(method="GET", target="/" + "x" * 65536), 414),
        (raw_request(method="GET", target="/health-check?" + "x" * 65536), 414),
    ],
)
def test_the_size_of_a_head_is_limited(shared_server, data, status):
    (reply,) = exchange_until_close(shared_server("echo"), data)
    assert reply.status == status
    assert reply.error


def test_a_tls_handshake_on_the_plain_port_is_recognized(shared_server):
    hello = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(200)
    (reply,) = exchange_until_close(shared_server("echo"), hello)
    assert reply.status == 400
    assert "TLS" in reply.error


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/nowhere", 404),
        ("BREW", "/predictions", 405),
        ("DELETE", "/predictions", 405),
        ("PUT", "/predictions/%ff", 400),
        ("GET", "/predictions/%ff", 400),
        ("POST", "/predictions/%ff/cancel", 400),
    ],
)
def test_unknown_paths_and_methods_are_refused_in_json(shared_server, method, target, status):
    (reply,) = exchange_until_close(
        shared_server("echo"), raw_request("connection: close", method=method, target=target)
    )
    assert reply.status == status
    assert reply.error
    assert (status == 405) == ("allow" in reply.headers)


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        ("/predictions", "content-type: text/plain", 415),
        ("/nowhere", JSON, 404),
        ("/health-check", JSON, 405),
    ],
)
def test_an_unread_body_is_not_parsed_as_the_next_request(shared_server, target, header, status):
    body = SMUGGLED * 5000
    (reply,) = exchange_until_close(
        shared_server("echo"), raw_request(header, f"content-length: {len(body)}", target=target, body=body)
    )
    assert reply.status == status
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    (reply,) = exchange_until_close(
        shared_server("echo"), raw_request(header, "transfer-encoding: chunked", target=target, body=chunk)
    )
    assert reply.status == status


def memory(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def test_a_body_of_200_mib_is_refused_by_its_length(start_server):
    server = start_server("echo")
    before = memory(server)
    with RawConnection(server) as connection:
        connection.send(raw_request(JSON, f"content-length: {200 * MIB}"))
        for _ in range(200):
            connection.try_send(bytes(MIB))
        assert connection.only_reply().status == 413
    assert memory(server) - before < 20 * MIB


@pytest.mark.parametrize("expect", [(), ("expect: 100-continue",)])
def test_a_declared_body_of_1_gib_is_refused_before_it_is_sent(shared_server, expect):
    with RawConnection(shared_server("echo")) as connection:
        reply = connection.send(raw_request(JSON, f"content-length: {1024 * MIB}", *expect)).only_reply()
    assert reply.status == 413
    assert "the limit of" in reply.error


def test_a_chunked_body_is_refused_when_it_crosses_the_limit(start_server):
    server = start_server("echo", "--max-body", "10MiB")
    before = memory(server)
    with RawConnection(server) as connection:
        connection.send(raw_request(JSON, "transfer-encoding: chunked"))
        for _ in range(200):
            connection.try_send(b"100000\r\n" + b" " * MIB + b"\r\n")
        assert connection.only_reply().status == 413
    # A buffer that grows is there twice for a moment.
    assert memory(server) - before < 50 * MIB
    assert server.predict().status == 200


def test_incomplete_headers_time_out(start_server):
    server = start_server("echo", "--header-timeout", "500ms")
    with RawConnection(server) as connection:
        reply = connection.send(raw_request()[:-4]).only_reply()
    assert reply.status == 408
    assert "headers" in reply.error
    with RawConnection(server) as connection:
        assert connection.read_until_close() == b"", "nothing was asked, nothing is answered"


def test_headers_sent_byte_by_byte_time_out(start_server):
    server = start_server("echo", "--header-timeout", "1s")
    with RawConnection(server) as connection:
        connection.socket.setblocking(False)

        def hung_up() -> bool:
            connection.try_send(b"x")
            with suppress(BlockingIOError):
                return b"408" in connection.socket.recv(100)
            return False

        wait_until(hung_up, "the server to give up")


def test_an_incomplete_body_times_out(start_server):
    server = start_server("echo", "--body-timeout", "500ms")
    with RawConnection(server) as connection:
        reply = connection.send(raw_request(JSON, "content-length: 100", body=b'{"input"')).only_reply()
    assert reply.status == 408
    assert reply.error


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_request_is_served_next_to_2000_idle_connections(start_server, many_files):
    server = start_server("echo")
    with ExitStack() as held:
        for _ in range(2000):
            held.enter_context(RawConnection(server))
        assert server.predict({"text": "served"}).json["output"] == "served"


def test_a_request_is_served_next_to_200_incomplete_ones(shared_server):
    server = shared_server("echo")
    with ExitStack() as held:
        for number in range(200):
            half = raw_request(JSON, "content-length: 100", body=b"{") if number % 2 else raw_request()[:30]
            held.enter_context(RawConnection(server)).send(half)
        assert server.predict({"text": "served"}).json["output"] == "served"


def test_connections_beyond_the_limit_wait_until_one_closes(start_server):
    server = start_server("echo", "--max-connections", "3")
    health = raw_request("connection: close", method="GET", target="/health-check")
    assert server.get("/").status == 200  # one connection, which the client keeps
    with RawConnection(server) as first, RawConnection(server), RawConnection(server) as late:
        late.send(health).socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            late.socket.recv(1)
        wait_until(lambda: "--max-connections" in server.log(), "the warning")
        first.socket.close()
        late.socket.settimeout(10)
        assert late.only_reply().status == 200


def descriptors(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_a_webhook_arrives_when_descriptors_run_out(start_server, gate, receiver):
    server, hook = start_server("echo", "--queue", "10"), receiver.path()
    server.start(
        {"gate": str(gate), "text": "kept"}, webhook=receiver.url + hook, webhook_events_filter=["completed"]
    )
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    limit = descriptors(server) + 8
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
    with ExitStack() as held:
        for _ in range(50):
            held.enter_context(RawConnection(server)).send(raw_request()[:20])
        wait_until(lambda: "descriptors" in server.log(), "the server to notice")
        assert descriptors(server) < limit, "some are left for others"
        gate.open()
        assert receiver.wait_terminal(hook)["output"] == "kept"
    # One request at a time is still served, and all of them when there are descriptors again.
    assert server.predict({"text": "tight"}).json["output"] == "tight"
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert server.predict({"text": "roomy"}).json["output"] == "roomy"


def test_the_limit_of_open_files_is_raised(start_server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        server = start_server("echo")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == min(hard, MIB)


@pytest.fixture
def https(start_server, tmp_path) -> Server:
    certificate, key = make_certificate(tmp_path, "first")
    return start_server(
        "echo", "--tls-cert", str(certificate), "--tls-key", str(key), certificate=certificate
    )


def s_client(server: Server, *flags: str) -> subprocess.CompletedProcess[str]:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", *flags]
    return subprocess.run(command, input="", capture_output=True, text=True, timeout=20, check=False)


def test_predictions_over_tls(https):
    assert https.predict({"text": "secret"}).json["output"] == "secret"
    assert f"https://127.0.0.1:{https.port}" in https.log()


def test_tls_1_2_and_1_3_and_nothing_older(https):
    for version, name in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        spoken = s_client(https, version, "-alpn", "h2,http/1.1")
        assert f"Protocol  : {name}" in spoken.stdout or f"New, {name}" in spoken.stdout
        assert "ALPN protocol: http/1.1" in spoken.stdout
    for version in ("-tls1", "-tls1_1"):
        # The client's own defaults would refuse these before the server is asked.
        assert s_client(https, version, "-cipher", "ALL:@SECLEVEL=0").returncode != 0


def test_plain_http_on_the_tls_port_is_refused_with_a_reason(https):
    (reply,) = exchange_until_close(https, SMUGGLED)
    assert reply.status == 400
    assert "https://" in reply.error


def test_framing_is_checked_under_tls_too(https):
    data = raw_request("content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n" + SMUGGLED)
    command = ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{https.port}"]
    spoken = subprocess.run(command, input=data, capture_output=True, timeout=20, check=False)
    assert spoken.stdout.startswith(b"HTTP/1.1 400 ")
    assert spoken.stdout.count(b"HTTP/1.1") == 1


def test_a_hanging_handshake_does_not_block_others(https):
    with ExitStack() as held:
        for data in (b"", b"\x16", b"\x16\x03\x01\x00\xc8"):
            held.enter_context(RawConnection(https)).send(data)
        assert https.predict({"text": "served"}).json["output"] == "served"


def issuer(server: Server) -> str:
    return s_client(server).stdout


def test_a_certificate_is_reloaded_without_closing_connections(https, tmp_path):
    assert "CN = first" in issuer(https) or "CN=first" in issuer(https)
    assert https.predict({"text": "before"}).status == 200  # this connection stays open
    second, key = make_certificate(tmp_path, "second")
    second.replace(tmp_path / "first.pem")
    key.replace(tmp_path / "first.key")
    https.signal(signal.SIGHUP)
    wait_until(lambda: "second" in issuer(https), "the new certificate")
    assert https.predict({"text": "after"}).json["output"] == "after"

    (tmp_path / "first.pem").write_text("no certificate")
    https.mark_log()
    https.signal(signal.SIGHUP)
    wait_until(lambda: "first.pem" in https.log(), "the complaint")
    assert "second" in issuer(https)


def test_an_invalid_certificate_is_reported_with_the_reason(tidegate, tmp_path):
    certificate, key = make_certificate(tmp_path, "one")
    _, other = make_certificate(tmp_path, "two")
    empty = tmp_path / "empty.pem"
    empty.touch()
    for flags, words in [
        (["--tls-cert", certificate, "--tls-key", other], [str(other), "together"]),
        (["--tls-cert", tmp_path / "missing", "--tls-key", key], ["missing", "No such file"]),
        (["--tls-cert", empty, "--tls-key", key], ["empty.pem", "certificate"]),
        (["--tls-cert", certificate, "--tls-key", certificate], ["--tls-key"]),
        (["--tls-cert", certificate], ["--tls-key"]),
        (["--tls-key", key], ["--tls-cert"]),
    ]:
        ended = tidegate("serve", Path(__file__).parents[1] / "models" / "echo", "--port", 0, *flags)
        assert ended.returncode == 64, ended.stderr
        for word in words:
            assert word in ended.stderr, ended.stderr


def test_a_client_that_stops_reading_a_stream_does_not_block_the_model(start_server):
    """Its buffers are full after some kilobytes; the job goes on to its end all the same."""
    server = start_server("generator")
    before = memory(server)
    body = b'{"input": {"count": 300000}}'
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(
            raw_request(JSON, "accept: text/event-stream", f"content-length: {len(body)}", body=body)
        )
        server.wait_health("BUSY")
        server.wait_health("READY")
        assert memory(server) - before < 200 * MIB
        assert server.predict({"count": 1}).status == 200

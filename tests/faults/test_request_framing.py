"""Rows D3 to D5 of docs/reliability.md: bodies that are too large, of the wrong type, or malformed."""

import re

import pytest
from baseline import MIB, assert_refused
from processes import peak_memory, resident_memory
from raw_http import RawConnection, exchange, json_request

BODY = b'{"input":{"nonce":"never"}}'
CHUNK = b"100000\r\n" + b" " * MIB + b"\r\n"


def test_a_body_of_200_mib_is_refused(baseline):
    """The answer must reach a client that goes on sending."""
    with RawConnection(baseline.server) as connection:
        connection.send(json_request(length=200 * MIB))
        for _ in range(200):
            connection.try_send(b" " * MIB)
        reply = connection.reply()
    assert_refused(reply, 413)
    baseline.check()


def test_a_body_of_200_mib_is_refused_by_its_length(baseline):
    with RawConnection(baseline.server) as connection:
        reply = connection.send(json_request(length=200 * MIB)).reply()
    assert_refused(reply, 413)
    baseline.check()


def test_a_body_of_1_gib_is_refused_before_it_is_sent(baseline):
    with RawConnection(baseline.server) as connection:
        reply = connection.send(json_request(length=1024 * MIB, expect="100-continue")).reply()
    assert_refused(reply, 413)
    baseline.check()


def test_a_chunked_body_is_refused_when_it_exceeds_the_limit(baseline):
    with RawConnection(baseline.server) as connection:
        connection.send(json_request(content_length="", transfer_encoding="chunked"))
        for _ in range(200):
            connection.try_send(CHUNK)
        reply = connection.reply()
    assert_refused(reply, 413)
    baseline.check()


def test_memory_is_bounded_while_large_bodies_arrive(start_server):
    server = start_server("journal", "--max-body", "20MiB")
    before = resident_memory(server.process.pid)
    for _ in range(3):
        for head in (
            json_request(length=1024 * MIB),
            json_request(content_length="", transfer_encoding="chunked"),
        ):
            with RawConnection(server) as connection:
                connection.send(head)
                for _ in range(60):
                    connection.try_send(CHUNK)
    assert server.predict({"nonce": "next"}).status == 200
    # One body at a time, each at most 20 MiB; a vector that grows has up to three times that for a moment.
    assert peak_memory(server.process.pid) - before < 100 * MIB


@pytest.mark.parametrize("length", ["18446744073709551615", "18446744073709551616", "9" * 1000])
def test_a_content_length_that_overflows_is_refused(baseline, length):
    assert_refused(exchange(baseline.server, json_request(content_length=length)), 400, 413, 431)
    baseline.check()


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "application/x-python-pickle",
        "application/jsonp",
        "json",
        ";",
        "*/*",
    ],
)
def test_a_body_with_another_content_type_is_refused(baseline, content_type):
    assert_refused(exchange(baseline.server, json_request(BODY, content_type=content_type)), 415)
    baseline.check()


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_without_a_content_type_is_refused(baseline, method):
    target = "/predictions/untyped" if method == "PUT" else "/predictions"
    reply = exchange(baseline.server, json_request(BODY, method=method, target=target, content_type=""))
    assert_refused(reply, 415)
    baseline.check()


def test_a_compressed_body_is_refused(baseline):
    assert_refused(exchange(baseline.server, json_request(BODY, content_encoding="gzip")), 400, 415)
    baseline.check()


HEADS = {
    "a header of 100 KiB": (json_request(BODY, x="a" * 100 * 1024), {431}),
    "a header of 1 MiB": (json_request(BODY, x="a" * MIB), {431}),
    "101 headers": (json_request(BODY, **{f"x{n}": "a" for n in range(101)}), {431}),
    "5000 headers": (json_request(BODY, **{f"x{n}": "a" for n in range(5000)}), {431}),
    "a target of 64 KiB": (json_request(BODY, target="/" + "a" * 65536), {414, 431}),
    "a query of 64 KiB": (json_request(BODY, target="/predictions?" + "a" * 65536), {414, 431}),
    "two lengths": (json_request(BODY, **{"content-length": "27", "content_length": "5"}), {400}),
    "two lengths in one line": (json_request(BODY, content_length="27, 5"), {400}),
    "a negative length": (json_request(BODY, content_length="-1"), {400}),
    "a length with a sign": (json_request(BODY, content_length="+27"), {400}),
    "a length in hexadecimal": (json_request(BODY, content_length="0x1b"), {400}),
    "chunked and a length": (json_request(b"0\r\n\r\n", transfer_encoding="chunked"), {400}),
    "chunked twice": (
        json_request(b"0\r\n\r\n", content_length="", transfer_encoding="chunked, chunked"),
        {400},
    ),
    "an unknown coding": (json_request(BODY, content_length="", transfer_encoding="rot13"), {400}),
    "chunked, then another": (
        json_request(BODY, content_length="", transfer_encoding="chunked, identity"),
        {400},
    ),
    "a chunk size that is no number": (
        json_request(b"zz\r\n", content_length="", transfer_encoding="chunked"),
        {400},
    ),
    "a chunk size without end": (
        json_request(b"1" * 5000, content_length="", transfer_encoding="chunked"),
        {400},
    ),
    "a space before the colon": (json_request(BODY).replace(b"content-type:", b"content-type :"), {400}),
    "a folded header": (json_request(BODY).replace(b"Host: localhost", b"Host: localhost\r\n more"), {400}),
    "NUL in a header": (json_request(BODY, x="a\0b"), {400}),
    "a bare line feed in a header": (
        json_request(BODY).replace(b"Host: localhost\r\n", b"Host: a\rb\r\n"),
        {400},
    ),
    "no HTTP at all": (b"hello\r\n\r\n", {400}),
    "a TLS hello": (bytes.fromhex("16030100a5010000a10303") + bytes(160), {400}),
    "HTTP/9.9": (json_request(BODY).replace(b"HTTP/1.1", b"HTTP/9.9"), {400}),
    "an unknown method": (json_request(BODY, method="BREW"), {405}),
    "a method of 64 KiB": (json_request(BODY, method="A" * 65536), {400, 405, 431}),
    "CONNECT": (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404, 405}),
    "TRACE": (b"TRACE /predictions HTTP/1.1\r\nHost: localhost\r\ncookie: secret\r\n\r\n", {405}),
    "an unknown path": (json_request(BODY, target="/nothing"), {404}),
    "a path above the root": (json_request(BODY, target="/../../etc/passwd"), {400, 404}),
    "an address as the target": (
        json_request(BODY, target="http://169.254.169.254/predictions/x/y"),
        {400, 404},
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_malformed_request_head_is_refused(baseline, name):
    data, statuses = HEADS[name]
    assert_refused(exchange(baseline.server, data), *statuses)
    baseline.check()


@pytest.mark.parametrize(
    "framing",
    [
        {"transfer_encoding": "chunked", "content_length": "4"},
        {"transfer_encoding": "chunked", "content_length": "0"},
        {"content-length": "0", "content_length": "5"},
        {"transfer_encoding": "\x0bchunked", "content_length": "4"},
        {"transfer_encoding": "chunked", "transfer-encoding": "identity", "content_length": "4"},
    ],
    ids=str,
)
def test_ambiguous_lengths_smuggle_no_request(baseline, framing):
    """Two readers of such a head disagree about where the next request begins, so there is no next one."""
    hidden = json_request(
        {"input": {"nonce": "smuggled"}, "webhook": baseline.webhook}, prefer="respond-async"
    )
    with RawConnection(baseline.server) as connection:
        connection.try_send(json_request(b"0\r\n\r\n" + hidden, **framing))
        reply = connection.reply()
        assert connection.is_closed()
    assert_refused(reply, 400)
    baseline.check()


def test_an_http_2_connection_is_closed(baseline):
    with RawConnection(baseline.server) as connection:
        connection.try_send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert connection.is_closed()
    baseline.check()


def test_responses_do_not_echo_the_request(baseline):
    """A page on another site cannot make the server answer with markup."""
    for target in ("/<script>alert(1)</script>", "/predictions/%3Cscript%3E"):
        reply = exchange(baseline.server, json_request(b"", method="GET", target=target))
        assert re.match("application/json", reply.content_type or ""), str(reply)
    baseline.check()

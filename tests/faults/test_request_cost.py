"""Rows D1 and D3 of docs/reliability.md: the cost of a request is proportional to its size."""

import time

from baseline import MIB, Baseline, assert_refused
from processes import peak_memory, resident_memory
from raw_http import RawConnection, exchange, json_request
from waiting import wait_until

BOUND = 30.0


def test_the_number_of_reported_mistakes_is_bounded(baseline):
    """200 KiB of mistakes must not be answered with 10 MiB."""
    body = b'{"input":{"words":[' + b",".join([b"1"] * 100_000) + b"]}}"
    reply = exchange(baseline.server, json_request(body), timeout=BOUND)
    assert_refused(reply, 422)
    assert len(reply.body) < MIB
    baseline.check()


def test_a_long_mistake_is_truncated(baseline):
    reply = exchange(baseline.server, json_request({"input": {"whole": "x" * 5 * MIB}}), timeout=BOUND)
    assert_refused(reply, 422)
    assert len(reply.body) < 64 * 1024
    baseline.check()


def test_a_body_of_many_small_values_does_not_fill_the_memory(start_server, receiver, tmp_path):
    """A million tiny objects are 7 MiB on the wire; at 100 times that, one body is the end of the server."""
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    before = resident_memory(server.process.pid)
    body = b'{"input":{"anything":{"a":[' + b",".join([b'{"":0}'] * 1_000_000) + b"]}}}"
    reply = exchange(server, json_request(body), timeout=BOUND)
    assert reply.status in (200, 413, 422), str(reply)
    assert peak_memory(server.process.pid) - before < 256 * MIB
    proof.assert_not_grown(128 * MIB)
    proof.assert_slots()


def test_health_responds_while_large_bodies_are_read(start_server):
    server = start_server("journal")
    body = b'{"input":{"anything":{"a":[' + b",".join([b"[[0]]"] * 300_000) + b"]}}}"
    connections = [RawConnection(server).send(json_request(body)) for _ in range(4)]
    slowest = 0.0
    for _ in range(20):
        began = time.monotonic()
        server.health()
        slowest = max(slowest, time.monotonic() - began)
    for connection in connections:
        assert connection.reply(BOUND).status in (200, 409, 413, 422)
        connection.close()
    # A second is the promise; the rest is for a build without optimisation on a busy machine.
    assert slowest < 4, slowest
    wait_until(lambda: server.health()["status"] == "READY", "the server to be free")


def test_a_thousand_requests_in_one_write_are_answered_in_order(baseline):
    """Pipelining: bounded work at a time, every answer where it belongs."""
    with RawConnection(baseline.server) as connection:
        connection.send(b"".join(json_request({"input": {"nonce": f"{number}"}}) for number in range(1000)))
        assert [connection.reply().json["output"] for _ in range(1000)] == [
            f"{number}" for number in range(1000)
        ]
    baseline.assert_slots()

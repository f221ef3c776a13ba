"""D1 and D3: what a request costs stays in proportion to what was sent."""

import time

from baseline import MIB, Unhurt, assert_refused, memory, peak_memory
from raw_connection import Wire, ask, request
from servers import wait_until

BOUND = 30.0


def test_d1_a_hundred_thousand_mistakes_are_not_all_told(unhurt):
    """200 KiB of mistakes must not be answered with 10 MiB."""
    body = b'{"input":{"words":[' + b",".join([b"1"] * 100_000) + b"]}}"
    reply = ask(unhurt.server, request(body), timeout=BOUND)
    assert_refused(reply, 422)
    assert len(reply.body) < MIB
    unhurt.check()


def test_d1_a_long_mistake_is_cut(unhurt):
    reply = ask(unhurt.server, request({"input": {"whole": "x" * 5 * MIB}}), timeout=BOUND)
    assert_refused(reply, 422)
    assert len(reply.body) < 64 * 1024
    unhurt.check()


def test_d3_a_body_of_many_small_values_does_not_fill_the_memory(fresh, receiver, tmp_path):
    """A million tiny objects are 7 MiB on the wire; at 100 times that, one body is the end of the server."""
    server = fresh("journal")
    proof = Unhurt(server, receiver, tmp_path)
    before = memory(server.process.pid)
    body = b'{"input":{"anything":{"a":[' + b",".join([b'{"":0}'] * 1_000_000) + b"]}}}"
    reply = ask(server, request(body), timeout=BOUND)
    assert reply.status in (200, 413, 422), str(reply)
    assert peak_memory(server.process.pid) - before < 256 * MIB
    proof.assert_not_grown(128 * MIB)
    proof.assert_slots()


def test_d3_health_is_answered_while_large_bodies_are_read(fresh):
    server = fresh("journal")
    body = b'{"input":{"anything":{"a":[' + b",".join([b"[[0]]"] * 300_000) + b"]}}}"
    wires = [Wire(server).send(request(body)) for _ in range(4)]
    slowest = 0.0
    for _ in range(20):
        began = time.monotonic()
        server.health()
        slowest = max(slowest, time.monotonic() - began)
    for wire in wires:
        assert wire.reply(BOUND).status in (200, 409, 413, 422)
        wire.close()
    # A second is the promise; the rest is for a build without optimisation on a busy machine.
    assert slowest < 4, slowest
    wait_until(lambda: server.health()["status"] == "READY", "the server to be free")


def test_d3_a_thousand_requests_in_one_write_are_answered_in_order(unhurt):
    """Pipelining: bounded work at a time, every answer where it belongs."""
    with Wire(unhurt.server) as wire:
        wire.send(b"".join(request({"input": {"nonce": f"{number}"}}) for number in range(1000)))
        assert [wire.reply().json["output"] for _ in range(1000)] == [f"{number}" for number in range(1000)]
    unhurt.assert_slots()

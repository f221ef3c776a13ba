"""Random faults of backends, clients and the configuration at the same time: nothing hangs or leaks."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter

import pytest
import requests
from fleet_file import endpoint, fleet_toml, model
from router_process import Router, chat_body
from stub_upstream import DONE, Exchange, answer_chat, chat_event
from waiting import wait_until

SECONDS = 6.0
PERMITS = 3


def chaotic(seed: int):
    """Answer in a random way."""
    choice = random.Random(seed)

    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(choice.choice((0, 0, 0.001, 0.01, 0.05)))
        match choice.randrange(12):
            case 0:
                await exchange.respond(500, {"error": "broken"})
            case 1:
                await exchange.respond(503, {"error": "busy"}, retry_after="0.1")
            case 2:
                await exchange.cut()
            case 3:
                await exchange.raw(b"not HTTP\r\n\r\n")
                await exchange.cut()
            case 4:
                await exchange.respond(400, {"error": "bad"})
            case 5 if exchange.request.json.get("stream"):
                await exchange.begin_stream()
                await exchange.chunk(chat_event("first"))
                await exchange.cut()
            case 6:
                await asyncio.sleep(0.5)  # longer than the first byte may take
                await answer_chat(exchange)
            case _ if exchange.request.json.get("stream"):
                await exchange.begin_stream()
                for number in range(5):
                    await exchange.chunk(chat_event(str(number)))
                await exchange.chunk(DONE)
                await exchange.end_stream()
            case _:
                await answer_chat(exchange)

    return answer


class Load:
    """Clients that send, read and leave at random."""

    def __init__(self, running: Router, seed: int) -> None:
        self.running, self.seed = running, seed
        self.statuses: Counter[int] = Counter()
        self.problems: list[str] = []
        self.until = time.monotonic() + SECONDS
        self.threads = [threading.Thread(target=self._send, args=(number,)) for number in range(8)]
        for thread in self.threads:
            thread.start()

    def _send(self, number: int) -> None:
        choice = random.Random(self.seed * 100 + number)
        while time.monotonic() < self.until:
            if choice.random() < 0.15:
                connection = self.running.open_chat(stream=choice.random() < 0.5)
                time.sleep(choice.random() * 0.02)
                connection.close()
                continue
            body = chat_body("x" * choice.choice((1, 1000, 100_000)), stream=choice.random() < 0.5)
            try:
                reply = requests.post(f"{self.running.openai_url}/chat/completions", json=body, timeout=15)
                self.statuses[reply.status_code] += 1
            except requests.exceptions.ChunkedEncodingError:
                self.statuses[0] += 1  # cut inside an event
            except requests.RequestException as error:
                self.problems.append(repr(error))

    def join(self) -> None:
        for thread in self.threads:
            thread.join(SECONDS + 30)
            assert not thread.is_alive(), "a request hangs"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_faults_leave_nothing_behind(router, upstreams, seed):
    backends = [upstreams(chaotic(seed * 10 + number)) for number in range(3)]

    def config(choice: random.Random) -> str:
        endpoints = [endpoint(backend.url, permits=PERMITS) for backend in backends]
        return fleet_toml(
            model(
                "m",
                *choice.sample(endpoints, choice.choice((2, 3))),
                queue={"algorithm": choice.choice(("fair", "fifo")), "capacity": choice.choice((0, 2, 50))},
                timeout={"first_byte": "300ms", "total": "10s"},
            ),
            probe={"interval": "200ms"},
        )

    choice = random.Random(seed)
    running = router(config=config(choice))
    load = Load(running, seed)
    while time.monotonic() < load.until:
        assert running.reload(config(choice)).status == 200
        killed = choice.choice(backends)
        if choice.random() < 0.3:
            killed.stop()
            killed.start()
        time.sleep(0.05)
    load.join()
    assert load.problems == []
    allowed = {0, 200, 400, 429, 500, 502, 503, 504}
    assert set(load.statuses) <= allowed, load.statuses
    assert load.statuses[200] >= 20, load.statuses

    running.wait_used_permits(0)
    running.wait_queue_size(0)
    for backend in backends:
        backend.answer = answer_chat
    wait_until(lambda: running.chat().status == 200, "a router that works again")
    wait_until(lambda: sum(backend.n_active for backend in backends) == 0, "no request at a backend")

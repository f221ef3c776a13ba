"""The queues of the router: order, capacity, clients that leave, and changes while requests wait."""

from __future__ import annotations

import asyncio
import time

import pytest
from fleet_file import OPERATOR, account, endpoint, fleet_toml, model
from router_process import Router
from stub_upstream import Exchange, answer_chat
from waiting import wait_until

ADMIN = "operator-token"


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


def fleet(upstream, *, accounts=("a", "b"), permits: int = 1, **queue) -> dict:
    """A model with one slot at a backend that holds every request."""
    upstream.answer = hold
    return {
        "models": (model("m", endpoint(upstream.url, permits=permits), queue=queue),),
        "accounts": (OPERATOR, *(account(name) for name in accounts)),
    }


def start(router, description: dict) -> Router:
    return router(*description["models"], accounts=description["accounts"])


class Senders:
    """Requests of several accounts that arrive one after the other."""

    def __init__(self, router: Router, upstream, occupied: int = 1) -> None:
        self.router, self.upstream = router, upstream
        self.requests: dict[str, object] = {}
        for number in range(occupied):
            self.requests[f"first{number}"] = router.chat_in_background(f"first{number}", token=ADMIN)
        upstream.wait_for_requests(occupied)
        self.n_occupied, self.n_waiting = occupied, 0

    def send(self, *texts: str) -> None:
        """Send requests; the first letter of each text is its account."""
        for text in texts:
            self.requests[text] = self.router.chat_in_background(text, token=f"{text[0]}-token")
            self.n_waiting += 1
            self.router.wait_queue_size(self.n_waiting, token=ADMIN)

    def finish(self) -> list[str]:
        """Let the backend answer one request after the other; the order of those that waited."""
        for number in range(len(self.requests)):
            self.upstream.wait_for_requests(min(number + self.n_occupied, len(self.requests)))
            self.upstream.release()
        statuses = {text: request.reply().status for text, request in self.requests.items()}
        assert set(statuses.values()) == {200}, statuses
        return self.upstream.texts[self.n_occupied :]


def test_an_idle_router_does_not_queue(router, upstream):
    running = router(model("m", endpoint(upstream.url, permits=2)))
    for _ in range(5):
        assert running.chat().headers["x-queue-time-ms"] == "0"
    assert running.model_state()["queue_size"] == 0
    assert running.metric("tidegate_router_queue_seconds_sum", model="m") == 0


def test_fifo_serves_in_the_order_of_arrival(router, upstream):
    senders = Senders(start(router, fleet(upstream, algorithm="fifo", capacity=10)), upstream)
    sent = ["a1", "a2", "b1", "a3", "b2"]
    senders.send(*sent)
    assert senders.finish() == sent


def test_fair_queues_let_accounts_take_turns(router, upstream):
    senders = Senders(start(router, fleet(upstream, algorithm="fair", capacity=10)), upstream)
    senders.send(*(f"a{number}" for number in range(10)), "b1", "b2")
    assert senders.finish() == ["a0", "b1", "a1", "b2", *(f"a{number}" for number in range(2, 10))]


def test_an_account_that_comes_back_goes_to_the_end_of_the_rotation(router, upstream):
    description = fleet(upstream, accounts=("a", "b", "c"), algorithm="fair", capacity=10)
    running = start(router, description)
    senders = Senders(running, upstream)
    senders.send("a1", "b1", "b2", "c1", "c2")
    upstream.release(2)  # the first one, and a1: a has left the rotation
    upstream.wait_for_requests(3)
    running.wait_queue_size(3, token=ADMIN)
    senders.n_waiting = 3
    senders.send("a2")
    upstream.release(5)
    assert [request.reply().status for request in senders.requests.values()] == [200] * 7
    assert upstream.texts[1:] == ["a1", "b1", "c1", "b2", "a2", "c2"]


def test_two_models_have_queues_of_their_own_with_their_own_algorithms(router, upstreams):
    first, second = upstreams(hold, models=("f",)), upstreams(hold, models=("g",))
    running = router(
        model("f", endpoint(first.url, permits=1), queue={"algorithm": "fifo", "capacity": 1}),
        model("g", endpoint(second.url, permits=1), queue={"algorithm": "fair", "capacity": 1}),
    )
    states = {state["name"]: state["algorithm"] for state in running.state()["models"]}
    assert states == {"f": "fifo", "g": "fair"}
    waiting = [running.chat_in_background(text, "f") for text in ("1", "2")]
    running.wait_queue_size(1, "f")
    assert running.chat("3", "f").status == 429
    second.release()
    assert running.chat("4", "g").status == 200
    first.release(2)
    assert [request.reply().status for request in waiting] == [200, 200]


def test_the_capacity_is_the_factor_times_the_permits(router, upstreams):
    backends = [upstreams(hold), upstreams(hold)]
    running = router(
        model("m", *(endpoint(backend.url, permits=3) for backend in backends), queue={"capacity": 2})
    )
    waiting = [running.chat_in_background(str(number)) for number in range(18)]
    running.wait_queue_size(12)
    began = time.monotonic()
    refused = running.chat("the 13th")
    assert refused.status == 429, str(refused)
    assert time.monotonic() - began < 5, "the refusal must not wait"
    assert refused.json["error"]["code"] == "capacity_exceeded"
    for backend in backends:
        backend.release(18)
    assert [request.reply().status for request in waiting] == [200] * 18
    assert max(backend.most_active for backend in backends) == 3


def test_the_larger_of_the_two_capacities_counts(router, upstream):
    description = fleet(upstream, capacity=1, site_capacity=3)
    running = start(router, description)
    senders = Senders(running, upstream)
    senders.send("a1", "a2", "a3")
    assert running.chat("a4", token="a-token").status == 429
    senders.finish()


def test_without_capacity_nothing_waits(router, upstream):
    running = start(router, fleet(upstream, capacity=0))
    senders = Senders(running, upstream)
    assert running.chat("a1", token="a-token").status == 429
    senders.finish()


def test_a_queue_has_at_most_1000_places(router, upstream):
    """The settings give 5000 places."""
    upstream.answer = hold
    running = router(
        model("m", endpoint(upstream.url, permits=5), queue={"capacity": 1000, "max_wait": "60s"})
    )
    occupied = [running.open_chat("occupies a slot") for _ in range(5)]
    upstream.wait_for_requests(5)
    waiting = [running.open_chat(str(number)) for number in range(1000)]
    wait_until(lambda: running.model_state()["queue_size"] == 1000, "1000 waiting requests", 40)
    assert running.chat("the 1001st").status == 429
    for connection in (*occupied, *waiting):
        connection.close()
    wait_until(lambda: running.model_state()["queue_size"] == 0, "an empty queue", 40)


def test_the_capacity_of_a_fair_queue_is_for_each_account(router, upstream):
    running = start(router, fleet(upstream, algorithm="fair", capacity=2))
    senders = Senders(running, upstream)
    senders.send("a1", "a2")
    assert running.chat("a3", token="a-token").status == 429
    senders.send("b1")
    assert senders.finish() == ["a1", "b1", "a2"]


def test_the_capacity_of_a_fifo_queue_is_for_all_accounts(router, upstream):
    running = start(router, fleet(upstream, algorithm="fifo", capacity=2))
    senders = Senders(running, upstream)
    senders.send("a1", "a2")
    assert running.chat("b1", token="b-token").status == 429
    assert senders.finish() == ["a1", "a2"]


def test_waiters_that_disconnect_free_their_places(router, upstream):
    running = start(router, fleet(upstream, algorithm="fifo", capacity=3))
    senders = Senders(running, upstream)
    left = [running.open_chat(f"left{number}", token="a-token") for number in range(3)]
    running.wait_queue_size(3, token=ADMIN)
    for connection in left:
        connection.close()
    running.wait_queue_size(0, token=ADMIN)
    senders.send("a1")
    assert senders.finish() == ["a1"]


def test_a_request_that_waits_too_long_is_refused(router, upstream):
    running = start(router, fleet(upstream, capacity=3, max_wait="200ms"))
    senders = Senders(running, upstream)
    refused = running.chat("a1", token="a-token")
    assert refused.status == 429, str(refused)
    assert refused.json["error"]["code"] == "capacity_exceeded"
    senders.finish()


def test_the_queue_is_empty_after_a_restart(router, upstream):
    description = fleet(upstream, capacity=3)
    running = start(router, description)
    waiting = [running.open_chat(str(number), token="a-token") for number in range(3)]
    running.wait_queue_size(2, token=ADMIN)
    running.server.process.kill()
    for connection in waiting:
        assert connection.is_closed()
    running.server.process.wait(5)
    again = start(router, description)
    assert again.model_state(token=ADMIN)["queue_size"] == 0


def test_waiters_are_refused_when_the_last_endpoint_becomes_unhealthy(router, upstream):
    upstream.answer = hold
    running = router(
        model("m", endpoint(upstream.url, permits=1), queue={"capacity": 5, "max_wait": "60s"}),
        probe={"interval": "100ms"},
    )
    running.chat_in_background("occupies the slot")
    upstream.wait_for_requests(1)
    waiting = [running.chat_in_background(str(number)) for number in range(4)]
    running.wait_queue_size(4)
    upstream.health_status = 503
    replies = [request.reply() for request in waiting]
    assert {reply.status for reply in replies} <= {429, 503}, [str(reply) for reply in replies]
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies)
    running.wait_queue_size(0)
    assert upstream.n_requests == 1


@pytest.mark.parametrize(("before", "after"), [("fifo", "fair"), ("fair", "fifo")])
def test_the_algorithm_changes_while_ten_requests_wait(router, upstream, before, after):
    running = start(router, fleet(upstream, algorithm=before, capacity=20))
    senders = Senders(running, upstream)
    sent = [*(f"a{number}" for number in range(8)), "b0", "b1"]
    senders.send(*sent)
    changed = fleet(upstream, algorithm=after, capacity=20)
    reply = running.reload(fleet_toml(*changed["models"], accounts=changed["accounts"]), ADMIN)
    assert reply.status == 200, str(reply)
    running.wait_queue_size(10, token=ADMIN)
    order = senders.finish()
    if after == "fifo":
        assert order == sent
    else:
        assert order == ["a0", "b0", "a1", "b1", *(f"a{number}" for number in range(2, 8))]
    assert upstream.n_requests == 11, "no request ran twice"


def test_waiters_that_do_not_fit_into_the_new_queue_are_refused(router, upstream):
    running = start(router, fleet(upstream, algorithm="fifo", capacity=6))
    senders = Senders(running, upstream)
    senders.send(*(f"a{number}" for number in range(6)))
    smaller = fleet(upstream, algorithm="fifo", capacity=2)
    assert running.reload(fleet_toml(*smaller["models"], accounts=smaller["accounts"]), ADMIN).status == 200
    running.wait_queue_size(2, token=ADMIN)
    refused = [senders.requests.pop(f"a{number}") for number in range(2, 6)]
    assert [request.reply().status for request in refused] == [429] * 4
    assert senders.finish() == ["a0", "a1"]


def test_more_permits_start_waiting_requests_at_once(router, upstream):
    running = start(router, fleet(upstream, capacity=4))
    senders = Senders(running, upstream)
    senders.send("a1", "a2", "a3")
    wider = fleet(upstream, permits=3, capacity=4)
    assert running.reload(fleet_toml(*wider["models"], accounts=wider["accounts"]), ADMIN).status == 200
    upstream.wait_for_requests(3)
    running.wait_queue_size(1, token=ADMIN)
    upstream.release(4)
    assert [request.reply().status for request in senders.requests.values()] == [200] * 4
    assert upstream.most_active == 3


def test_retry_after_follows_the_service_time_and_the_queue(router, upstream):
    """One slot, jobs of about a second, five waiting: the sixth would begin after about six seconds."""

    async def one_second(exchange: Exchange) -> None:
        await asyncio.sleep(1)
        await answer_chat(exchange)

    upstream.answer = one_second
    running = router(model("m", endpoint(upstream.url, permits=1), queue={"capacity": 5, "max_wait": "60s"}))
    assert running.chat().status == 200
    waiting = [running.chat_in_background(str(number)) for number in range(6)]
    running.wait_queue_size(5)
    refused = running.chat("too many")
    assert refused.status == 429, str(refused)
    assert 4 <= int(refused.headers["retry-after"]) <= 9, refused.headers["retry-after"]
    assert [request.reply().status for request in waiting] == [200] * 6


def test_refusals_of_bad_input_do_not_count_as_service_time(router, upstream):
    """They take a moment, and `Retry-After` is about requests that run."""

    async def one_second(exchange: Exchange) -> None:
        if exchange.request.text == "bad":
            await exchange.respond(400, {"error": {"message": "too many words"}})
            return
        await asyncio.sleep(1)
        await answer_chat(exchange)

    upstream.answer = one_second
    running = router(model("m", endpoint(upstream.url, permits=1)))
    assert running.chat().status == 200
    measured = running.model_state()["service_time_ms"]
    assert measured >= 1000
    assert [running.chat("bad").status for _ in range(10)] == [400] * 10
    assert running.model_state()["service_time_ms"] == measured


def test_the_bodies_of_waiting_requests_have_a_limit(router, upstream):
    upstream.answer = hold
    running = router(
        model("m", endpoint(upstream.url, permits=1), queue={"capacity": 100}),
        limits={"waiting_memory": "100KiB"},
    )
    sent = [running.chat_in_background("x" * 60_000)]
    upstream.wait_for_requests(1)
    sent.append(running.chat_in_background("y" * 60_000))
    running.wait_queue_size(1)
    refused = running.chat("z" * 60_000)
    assert (refused.status, refused.json["error"]["code"]) == (429, "capacity_exceeded")
    sent.append(running.chat_in_background("small"))
    running.wait_queue_size(2)
    upstream.release(3)
    assert [request.reply().status for request in sent] == [200] * 3
    assert running.state()["waiting_memory"] == 0

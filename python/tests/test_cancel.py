"""A cancel interrupts its job immediately, and nothing else."""

from __future__ import annotations

import random
import time

import pytest

SLEEPER = """
    import time
    class Predictor:
        def predict(self, how: str = "sleep") -> str:
            print("begin")
            if how == "sleep":
                time.sleep(30)
            elif how == "loop":
                end = time.monotonic() + 30
                while time.monotonic() < end:
                    pass
            elif how == "swallow":
                try:
                    time.sleep(30)
                except BaseException as e:
                    print("swallowed", type(e).__module__, type(e).__name__)
                    return "swallowed"
            elif how == "lock":
                import threading
                lock = threading.Lock(); lock.acquire(); lock.acquire()
            elif how == "pipe":
                import os
                r, w = os.pipe(); os.read(r, 1)
            elif how == "ignored":
                import signal
                signal.signal(signal.SIGURG, signal.SIG_IGN)
                while True:
                    pass
            return how
"""


def wait_until_started(child, slot: int = 0) -> None:
    while "log" not in child.slots[slot].recv():
        pass


def test_a_cancel_just_before_a_sleep_is_not_lost(serve) -> None:
    # A single signal is lost if it arrives after the GIL was released and before the sleep has started.
    child = serve(SLEEPER)
    for _ in range(150):
        job = child.start(how="sleep")
        wait_until_started(child)
        child.cancel(job)
        assert child.finish(limit=5).kind == "cancelled"


@pytest.mark.parametrize("how", ["sleep", "loop", "swallow", "lock", "pipe", "ignored"])
def test_sync_code_is_interrupted_at_once(serve, how: str) -> None:
    child = serve(SLEEPER)
    job = child.start(how=how)
    wait_until_started(child)
    started = time.monotonic()
    child.cancel(job)
    outcome = child.finish()
    assert outcome.kind == "cancelled"
    assert time.monotonic() - started < 2
    assert child.control_until("cancelled") == {"slot": 0}
    if how == "swallow":
        assert outcome.logs == "swallowed coglet CancelationException\n"
    assert child.run(how="none").output == "none"


def test_a_cancel_for_another_job_is_ignored(serve) -> None:
    child = serve(SLEEPER)
    first = child.start(how="none")
    assert child.finish().output == "none"
    child.cancel(first)
    for _ in range(20):
        assert child.run(how="none").output == "none"


def test_a_cancel_that_arrives_before_its_job_takes_effect(serve) -> None:
    child = serve(SLEEPER)
    child.run(how="none")
    child.control.send({"cancel": {"slot": 0, "nth": 2}})
    # The health check is answered after the cancel was read: both use the same channel.
    child.control.send({"healthcheck": {"id": 1}})
    child.control_until("healthcheck_result")
    child.start(how="sleep")
    assert child.finish().kind == "cancelled"
    assert child.run(how="none").output == "none"


def test_a_job_with_the_id_of_the_previous_job_can_be_canceled_before_it_arrives(serve) -> None:
    child = serve(SLEEPER)
    child.start(how="none", extra={"id": "same"})
    assert child.finish().output == "none"
    child.control.send({"cancel": {"slot": 0, "nth": 2}})
    child.control.send({"healthcheck": {"id": 1}})
    child.control_until("healthcheck_result")
    child.start(how="sleep", extra={"id": "same"})
    assert child.finish().kind == "cancelled"


def test_a_cancel_never_hits_the_next_job(serve) -> None:
    child = serve("""
        import time
        class Predictor:
            def predict(self, seconds: float = 0.0, n: int = 0) -> int:
                end = time.perf_counter() + seconds
                x = 0
                while time.perf_counter() < end:
                    x += 1
                return n
    """)
    chance = random.Random(7)
    kinds = []
    for n in range(200):
        job = child.start(seconds=0.01, n=n)
        deadline = time.perf_counter() + chance.random() * 0.016
        while time.perf_counter() < deadline:
            pass
        child.cancel(job)
        outcome = child.finish()
        kinds.append(outcome.kind)
        assert outcome.kind in ("cancelled", "done")
        # The next job starts while the cancel may still be in transit.
        assert child.run(n=n).output == n
    assert {"cancelled", "done"} == set(kinds), "the cancels were not spread over the duration of the job"


def test_a_canceled_generator_is_closed(serve) -> None:
    child = serve("""
        import time
        from typing import Iterator
        class Predictor:
            def predict(self) -> Iterator[int]:
                try:
                    n = 0
                    while True:
                        yield n
                        n += 1
                finally:
                    print("closed")
    """)
    for _ in range(10):
        job = child.start()
        child.slots[0].recv()
        child.cancel(job)
        outcome = child.finish()
        assert outcome.kind == "cancelled"
        assert outcome.logs == "closed\n"


def test_an_async_job_is_cancelled_after_its_cleanup(serve) -> None:
    child = serve(
        """
        import asyncio
        class Predictor:
            async def predict(self, x: str = "") -> str:
                if x:
                    return x
                print("begin")
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    print("cleaning")
                    await asyncio.sleep(0.01)
                    print("clean")
                    return "swallowed"
        """,
        slots=2,
    )
    job = child.start(1)
    wait_until_started(child, 1)
    child.cancel(job, 1)
    outcome = child.finish(1)
    assert (outcome.kind, outcome.logs) == ("cancelled", "cleaning\nclean\n")
    assert child.run(1, x="next").output == "next"


def test_an_async_generator_is_cancelled(serve) -> None:
    child = serve("""
        import asyncio
        from typing import AsyncIterator
        class Predictor:
            async def predict(self) -> AsyncIterator[int]:
                try:
                    yield 1
                    await asyncio.sleep(30)
                finally:
                    print("closed")
    """)
    job = child.start()
    assert child.slots[0].recv() == {"output": {"output": 1}}
    child.cancel(job)
    outcome = child.finish()
    assert (outcome.kind, outcome.logs) == ("cancelled", "closed\n")


def test_async_cancels_at_random_moments(serve) -> None:
    child = serve(
        """
        import asyncio
        class Predictor:
            async def predict(self, n: int, wait: float = 0.0) -> int:
                await asyncio.sleep(wait)
                return n
        """,
        slots=4,
    )
    chance = random.Random(11)
    kinds = set()
    for n in range(100):
        slot = n % 4
        job = child.start(slot, n=n, wait=chance.choice([0.0, 0.001]))
        deadline = time.perf_counter() + chance.random() * 0.003
        while time.perf_counter() < deadline:
            pass
        child.cancel(job, slot)
        kinds.add(child.finish(slot).kind)
        assert child.run(slot, n=n).output == n
    assert kinds == {"cancelled", "done"}


def test_a_sync_train_on_a_thread_is_cancelled(serve) -> None:
    child = serve(
        """
        import time
        class Predictor:
            async def predict(self) -> str:
                return "p"
        def train(n: int = 1) -> str:
            print("begin")
            while True:
                time.sleep(0.001)
        """,
        train="predict.py:train",
    )
    job = child.start(kind="training")
    wait_until_started(child)
    child.cancel(job)
    assert child.finish().kind == "cancelled"
    assert child.run().output == "p"


def test_an_async_train_in_a_sync_model_is_cancelled(serve) -> None:
    child = serve(
        """
        import asyncio
        class Predictor:
            def predict(self) -> str:
                return "p"
        async def train(n: int = 1) -> str:
            print("begin")
            await asyncio.sleep(30)
        """,
        train="predict.py:train",
    )
    job = child.start(kind="training")
    wait_until_started(child)
    child.cancel(job)
    assert child.finish().kind == "cancelled"
    assert child.run().output == "p"


def test_a_model_may_raise_the_cancelation_itself(serve) -> None:
    child = serve("""
        import cog
        class Predictor:
            def predict(self) -> str:
                raise cog.CancelationException()
    """)
    assert child.run().kind == "cancelled"


def test_a_job_whose_task_is_canceled_by_another_job_fails(serve) -> None:
    child = serve(
        """
        import asyncio
        class Predictor:
            async def predict(self, kill: bool = False) -> str:
                if kill:
                    me = asyncio.current_task()
                    for task in asyncio.all_tasks():
                        if task is not me:
                            task.cancel()
                    return "killed the others"
                await asyncio.sleep(30)
                return "slept"
        """,
        slots=2,
    )
    child.start(0)
    child.start(1, kill=True)
    assert child.finish(1).output == "killed the others"
    assert "CancelledError" in child.finish(0).error

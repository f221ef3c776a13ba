"""Cancels of predictions that share a call of `predict_batch`."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_batches import DOUBLE

SLEEPER = """
    {imports}
    import tidegate

    class Predictor:
        {prefix}def predict(self, n: int) -> int:
            return n

        @tidegate.batched
        {prefix}def predict_batch(self, items):
            for number in range(len(items)):
                with tidegate.item(number):
                    print("begin")
            try:
                {sleep}
            except BaseException as error:
                with tidegate.item(0):
                    print(type(error).__name__)
                raise
            return [item["n"] for item in items]
"""
SYNC_SLEEPER = SLEEPER.format(imports="import time", prefix="", sleep="time.sleep(30)")
ASYNC_SLEEPER = SLEEPER.format(imports="import asyncio", prefix="async ", sleep="await asyncio.sleep(30)")


@pytest.mark.parametrize("source", [SYNC_SLEEPER, ASYNC_SLEEPER], ids=["sync", "async"])
def test_user_code_is_interrupted_when_no_item_is_left(serve, source: str) -> None:
    child = serve(source)
    jobs = child.start_batch({"n": 1}, {"n": 2})
    begun = 0
    while begun < 2:
        begun += "item" in child.slots[0].recv()
    child.cancel(jobs[1])
    child.cancel(jobs[0])
    outcomes, _ = child.finish_batch(2)
    assert [outcome.kind for outcome in outcomes] == ["cancelled", "cancelled"]
    assert outcomes[0].logs in ("CancelationException\n", "CancelledError\n")


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_canceled_item_does_not_interrupt_the_others(serve, tmp_path: Path, prefix: str) -> None:
    gate = tmp_path / "gate"
    sleep = "time.sleep(0.01)" if not prefix else "await asyncio.sleep(0.01)"
    child = serve(f"""
        import asyncio, os, time
        import tidegate

        class Predictor:
            {prefix}def predict(self, n: int) -> int:
                return n

            @tidegate.batched
            {prefix}def predict_batch(self, items):
                with tidegate.item(0):
                    print("begin")
                while not os.path.exists({str(gate)!r}):
                    {sleep}
                return [item["n"] for item in items]
        """)
    jobs = child.start_batch({"n": 1}, {"n": 2})
    while "item" not in child.slots[0].recv():
        pass
    child.cancel(jobs[0])
    # The control channel is in order: the reply shows that the cancel has arrived.
    child.control.send({"healthcheck": {"id": 1}})
    child.control_until("healthcheck_result")
    gate.touch()
    outcomes, _ = child.finish_batch(2)
    assert (outcomes[0].kind, outcomes[1].output) == ("cancelled", 2)


def test_an_item_that_was_canceled_before_it_arrived_is_not_run(serve) -> None:
    child = serve(DOUBLE)
    child.control.send({"cancel": {"slot": 0, "nth": 2}})
    child.control.send({"healthcheck": {"id": 1}})
    child.control_until("healthcheck_result")
    outcomes, calls = child.run_batch({"n": 1}, {"n": 2}, {"n": 3})
    assert [outcome.kind for outcome in outcomes] == ["done", "cancelled", "done"]
    assert calls == [2]

"""Batches that arrive while another one runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from test_batches import outputs

AHEAD = """
    import os
    import tidegate

    class Predictor:
        {prefix}def predict(self, n: int, gate: str = "") -> int:
            return n

        @tidegate.batched(max_size=2)
        {prefix}def predict_batch(self, items):
            with tidegate.item(0):
                print("begin")
            while items[0]["gate"] and not os.path.exists(items[0]["gate"]):
                {sleep}
            return [item["n"] for item in items]
"""
AHEAD_SYNC = AHEAD.format(prefix="", sleep="__import__('time').sleep(0.005)")
AHEAD_ASYNC = AHEAD.format(prefix="async ", sleep="await __import__('asyncio').sleep(0.005)")


@pytest.mark.parametrize("source", [AHEAD_SYNC, AHEAD_ASYNC], ids=["sync", "async"])
def test_a_batch_that_arrives_while_another_runs_waits(serve, tmp_path: Path, source: str) -> None:
    child, gate = serve(source), tmp_path / "gate"
    child.start_batch({"n": 1, "gate": str(gate)}, {"n": 2})
    while "item" not in child.slots[0].recv():
        pass
    jobs = child.start_batch({"n": 3}, {"n": 4})
    child.cancel(jobs[0])
    child.control.send({"healthcheck": {"id": 1}})
    child.control_until("healthcheck_result")
    gate.touch()
    outcomes, _ = child.finish_batch(2)
    assert outputs(outcomes) == [1, 2]
    outcomes, calls = child.finish_batch(2)
    assert (outcomes[0].kind, outcomes[1].output, calls) == ("cancelled", 4, [1])


@pytest.mark.parametrize("source", [AHEAD_SYNC, AHEAD_ASYNC], ids=["sync", "async"])
def test_two_batches_that_arrive_at_once_run_one_after_the_other(serve, source: str) -> None:
    child = serve(source)
    child.start_batch({"n": 1}, {"n": 2})
    child.start_batch({"n": 3}, {"n": 4})
    assert outputs(child.finish_batch(2)[0]) == [1, 2]
    assert outputs(child.finish_batch(2)[0]) == [3, 4]


@pytest.mark.parametrize("source", [AHEAD_SYNC, AHEAD_ASYNC], ids=["sync", "async"])
def test_the_cancel_of_a_batch_does_not_reach_the_next(serve, tmp_path: Path, source: str) -> None:
    child, gate = serve(source), tmp_path / "gate"
    jobs = child.start_batch({"n": 1, "gate": str(gate)}, {"n": 2})
    while "item" not in child.slots[0].recv():
        pass
    child.start_batch({"n": 3}, {"n": 4})
    for job in jobs:
        child.cancel(job)
    outcomes, _ = child.finish_batch(2)
    assert [outcome.kind for outcome in outcomes] == ["cancelled", "cancelled"]
    assert outputs(child.finish_batch(2)[0]) == [3, 4]


def test_a_process_that_can_run_no_more_refuses_the_next_batch(serve) -> None:
    child = serve("""
        import tidegate
        from tidegate import _native

        class Predictor:
            def predict(self, n: int) -> int:
                return n

            @tidegate.batched(max_size=2)
            def predict_batch(self, items):
                _native.current_job().members[0].retire()
                return [item["n"] for item in items]
        """)
    child.start_batch({"n": 1}, {"n": 2})
    child.start_batch({"n": 3}, {"n": 4})
    assert child.slots[0].recv() == {"batch_call": {"items": [0, 1]}}
    assert child.slots[0].recv() == {"item": {"n": 0, "message": "retire"}}
    assert outputs(child.finish_batch(2)[0]) == [1, 2]
    assert child.slots[0].recv() == "refused"
    child.start_batch({"n": 5})
    assert child.slots[0].recv() == "refused"
    child.sockets[0].shutdown(socket.SHUT_WR)
    assert child.sockets[0].recv(1) == b"", "the child has sent nothing more"

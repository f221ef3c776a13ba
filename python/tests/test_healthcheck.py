"""The health check of a model."""

from __future__ import annotations

import pytest

MODEL = """
    import time, asyncio
    class Predictor:
        {a}def predict(self, x: str = "") -> str:
            print("begin")
            {w}
            return x
        {h}def healthcheck(self) -> bool:
            print("checking")
            {b}
"""


def model(body: str, *, job: str = "pass", asynchronous: bool = False, healthcheck: str = "") -> str:
    return MODEL.format(a="async " if asynchronous else "", w=job, h=healthcheck, b=body)


def check(child, limit: float = 8.0) -> tuple[str, str | None]:
    child.control.send({"healthcheck": {"id": 7}})
    result = child.control_until("healthcheck_result", limit)
    assert result["id"] == 7
    return result["status"], result["error"]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("healthcheck", ["", "async "])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return True", None),
        ("return None", None),
        ("return False", "Healthcheck failed: user-defined healthcheck returned False"),
        ("raise ValueError('ill')", "Healthcheck failed: ValueError: ill"),
    ],
)
def test_result_of_a_healthcheck(
    serve, body: str, error: str | None, healthcheck: str, asynchronous: bool
) -> None:
    child = serve(model(body, asynchronous=asynchronous, healthcheck=healthcheck))
    assert child.ready["has_healthcheck"] is True
    assert check(child) == ("healthy" if error is None else "unhealthy", error)


@pytest.mark.parametrize(
    ("asynchronous", "job"), [(False, "time.sleep(30)"), (True, "await asyncio.sleep(30)")]
)
def test_a_healthcheck_runs_while_a_job_runs(serve, asynchronous: bool, job: str) -> None:
    child = serve(model("return True", job=job, asynchronous=asynchronous))
    name = child.start()
    assert child.slots[0].recv() == {"log": {"source": "stdout", "data": "begin\n"}}
    assert check(child)[0] == "healthy"
    child.cancel(name)
    assert child.finish().logs == "", "the check's own line does not belong to the job"


def test_a_healthcheck_that_hangs_times_out(serve) -> None:
    child = serve(model("time.sleep(60)"))
    error = "Healthcheck failed: user-defined healthcheck timed out after 5.0 seconds"
    assert check(child) == ("unhealthy", error)
    assert child.run(x="v").output == "v"


def test_a_model_without_a_healthcheck_is_healthy(serve) -> None:
    child = serve("def f() -> str: return ''", ref="predict.py:f")
    assert child.ready["has_healthcheck"] is False
    assert check(child) == ("healthy", None)

"""Metrics and context, through the API that models import."""

from __future__ import annotations

import pytest


@pytest.fixture
def recording(serve):
    """Runs statements in a model; each may raise an exception."""

    def run(body: str, **extra):
        lines = "\n".join(" " * 8 + line for line in body.strip().splitlines())
        child = serve(
            "from cog import current_scope\nimport cog\n"
            "class Predictor(cog.BaseRunner):\n    def run(self) -> str:\n"
            "        s = current_scope(); m = s.metrics\n"
            f"{lines}\n        return 'v'\n"
        )
        child.start(extra=extra)
        return child.finish()

    return run


def test_every_way_to_record_a_metric(recording) -> None:
    outcome = recording("""
m.record("a", 1)
m["b.c"] = [1]
s.record_metric("n", 2, mode="incr")
self.record_metric("n", 3, mode="increment")
m.record("l", "x", mode="append")
m.record("scalar", 1)
m.record("scalar", 2, mode="append")
self.scope.metrics["t"] = True
m["a"] = None
m.record("a", "other type after deletion")
del m["b.c"]
m.record("big", 2**70)
m.record("nan", float("nan"))
cog.emit_metric("old", 1.5)
""")
    assert outcome.metrics == [
        ("a", 1, "replace"),
        ("b.c", [1], "replace"),
        ("n", 2, "increment"),
        ("n", 3, "increment"),
        ("l", "x", "append"),
        ("scalar", 1, "replace"),
        ("scalar", 2, "append"),
        ("t", True, "replace"),
        ("a", None, "replace"),
        ("a", "other type after deletion", "replace"),
        ("b.c", None, "replace"),
        ("big", 2.0**70, "replace"),
        ("old", 1.5, "replace"),
    ]
    assert outcome.output == "v"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("m.record('a', None)", "TypeError"),
        ("m.record('a', object())", "TypeError"),
        ("m['a'] = 1; m['a'] = 1.0", "TypeError"),
        ("m['a'] = 1; m['a'] = True", "TypeError"),
        ("m['a'] = 1; m.record('a', 's', mode='append')", "TypeError"),
        ("m['a'] = [1]; m.record('a', 1, mode='append')", "TypeError"),
        ("m.record('a', 's', mode='incr')", "TypeError"),
        ("m.record('a', 1, mode='other')", "TypeError"),
        ("m['predict_time'] = 1.0", "ValueError"),
        ("m['cog.x'] = 1", "ValueError"),
        ("m['a.b.c.d.e'] = 1", "ValueError"),
        ("m['a__b'] = 1", "ValueError"),
        ("m['_a'] = 1", "ValueError"),
        ("m['1a'] = 1", "ValueError"),
        ("m['é'] = 1", "ValueError"),
        ("m[''] = 1", "ValueError"),
        ("m['x' * 129] = 1", "ValueError"),
    ],
)
def test_invalid_metrics_raise_in_the_model(recording, body: str, error: str) -> None:
    assert recording(body).error.startswith(f"Prediction failed: {error}: ")


def test_the_context_of_the_request_is_available(recording) -> None:
    assert recording("return s.context['who']", context={"who": "me"}).output == "me"


def test_metrics_outside_of_a_job_are_ignored(serve) -> None:
    child = serve("""
        import cog
        cog.current_scope().record_metric("a", 1)
        late = []
        class Predictor:
            def setup(self):
                cog.current_scope().metrics["a"] = 1
            def predict(self) -> str:
                late.append(cog.current_scope())
                late[0].record_metric("n", 1)
                return "v"
    """)
    assert len(child.run().metrics) == 1
    assert child.run().metrics == [], "the scope of an ended job has no effect"


def test_metrics_of_concurrent_jobs_are_separate(serve) -> None:
    child = serve(
        """
        import asyncio, cog
        class Predictor:
            async def predict(self, x: str) -> str:
                for _ in range(5):
                    cog.current_scope().record_metric("x", x)
                    await asyncio.sleep(0)
                return cog.current_scope().context["x"]
        """,
        slots=2,
    )
    for slot, x in ((0, "a"), (1, "b")):
        child.start(slot, x=x, extra={"context": {"x": x}})
    for slot, x in ((0, "a"), (1, "b")):
        outcome = child.finish(slot)
        assert {value for _, value, _ in outcome.metrics} == {x} and outcome.output == x


def test_nan_and_infinity_are_ignored(recording) -> None:
    outcome = recording("""
for bad in (float("nan"), float("inf"), float("-inf")):
    m.record("a", bad)
m.record("a", 1)  # no ignored value has fixed the type
""")
    assert outcome.metrics == [("a", 1, "replace")]

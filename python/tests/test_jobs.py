"""One job from its input to its last message: call kinds, errors, training."""

from __future__ import annotations

import json

import pytest


def test_a_class_keeps_its_state_between_jobs(serve) -> None:
    child = serve("""
        class Predictor:
            def setup(self):
                self.n = 10
            def predict(self, x: int = 1) -> int:
                self.n += x
                return self.n
    """)
    assert [child.run(x=2).output, child.run().output] == [12, 13]


@pytest.mark.parametrize("name", ["sync", "generator", "coroutine", "async_generator", "returns_generator"])
def test_every_call_kind(serve, name: str) -> None:
    child = serve(
        """
        from typing import Iterator, AsyncIterator
        def sync(x: str) -> str:
            return x
        def generator(x: str) -> Iterator[str]:
            yield x
            yield x
        async def coroutine(x: str) -> str:
            return x
        async def async_generator(x: str) -> AsyncIterator[str]:
            yield x
            yield x
        def returns_generator(x: str) -> Iterator[str]:
            return (x for _ in range(2))
        """,
        ref=f"predict.py:{name}",
    )
    outcome = child.run(x="v")
    if "generator" in name:
        assert outcome.items == ["v", "v"]
        assert outcome.body["is_stream"] and outcome.body["output"] is None
    else:
        assert outcome.output == "v" and not outcome.body["is_stream"]
    assert child.ready["is_async"] is (name in ("coroutine", "async_generator"))


def test_iterators_are_streamed_if_the_annotation_is_an_iterator(serve) -> None:
    child = serve("""
        from typing import Iterator
        class Predictor:
            def predict(self) -> Iterator[int]:
                return iter([1, 2])
    """)
    assert child.run().items == [1, 2]


def test_yielded_values_are_sent_immediately(serve) -> None:
    child = serve("""
        import os
        from typing import Iterator
        class Predictor:
            def predict(self, fifo: str) -> Iterator[str]:
                yield "first"
                open(fifo).read()
                yield "second"
    """)
    import os

    fifo = str(child.scratch / "fifo")
    os.mkfifo(fifo)
    child.start(fifo=fifo)
    assert child.slots[0].recv() == {"output": {"output": "first"}}
    open(fifo, "w").close()
    assert child.finish().items == ["second"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ValueError('no')", "Prediction failed: ValueError: no"),
        ("raise ValueError", "Prediction failed: ValueError: "),
        ("import sys; sys.exit(3)", "Prediction failed: SystemExit: 3"),
        ("raise KeyboardInterrupt('k')", "Prediction failed: KeyboardInterrupt: k"),
        (
            "return x.y.z",
            "Prediction failed: AttributeError: 'str' object has no attribute 'y'",
        ),
        (
            "raise Silent()",
            "Prediction failed: Silent: <no message: str() raised RuntimeError>",
        ),
        ("raise ValueError('\\ud800')", "Prediction failed: ValueError: \\ud800"),
    ],
)
def test_an_exception_is_a_failed_job(serve, body: str, error: str) -> None:
    child = serve(f"""
        class Silent(Exception):
            def __str__(self):
                raise RuntimeError
        class Predictor:
            def predict(self, x: str = "") -> str:
                if x == "ok":
                    return x
                {body}
    """)
    assert child.run().error == error
    assert child.run(x="ok").output == "ok"


def test_endless_recursion_is_a_failed_job(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self, x: str = "") -> str:
                return x if x else self.predict()
    """)
    assert "RecursionError" in child.run().error
    assert child.run(x="ok").output == "ok"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "def predict(self) -> Iterator[int]:\n yield 1\n raise ValueError('mid')",
            "Generator iteration error: ",
        ),
        ("async def predict(self) -> int:\n raise ValueError('mid')", ""),
        ("async def predict(self) -> AsyncIterator[int]:\n yield 1\n raise ValueError('mid')", ""),
    ],
)
def test_errors_of_generators_and_async_functions(serve, source: str, error: str) -> None:
    body = "\n".join("    " + line for line in source.splitlines())
    child = serve(f"from typing import Iterator, AsyncIterator\nclass Predictor:\n{body}")
    outcome = child.run()
    assert outcome.error == f"Prediction failed: {error}ValueError: mid"
    assert outcome.items in ([], [1])


@pytest.mark.parametrize(("end", "printed"), [("", "unfinished\n"), ("\\n", "unfinished\n")])
@pytest.mark.parametrize("prefix", ["", "async "])
def test_the_users_part_of_the_traceback_is_the_last_part_of_the_logs(
    serve, prefix: str, end: str, printed: str
) -> None:
    child = serve(f"""
        class Predictor:
            {prefix}def predict(self) -> str:
                print("unfinished", end="{end}")
                return inner()
        def inner():
            raise ValueError("deep")
    """)
    logs = child.run().logs
    assert logs.startswith(printed + "Traceback (most recent call last):\n")
    assert logs.endswith("\nValueError: deep\n")
    assert "in inner" in logs and "tidegate/run_" not in logs, logs


def test_a_long_traceback_is_truncated(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self) -> str:
                raise ValueError("x" * (100 << 20))
    """)
    assert len(child.run().logs) <= (1 << 20) + 1


TRAINED = """
    from typing import Any
    class Predictor:
        def setup(self):
            print("setup")
        def predict(self, x: str = "p") -> str:
            return "predicted " + x
    def train(n: int = 1) -> str:
        if n == 0:
            raise ValueError("zero")
        return f"trained {n}"
"""


def test_training_jobs_call_train(serve) -> None:
    child = serve(TRAINED, train="predict.py:train")
    assert child.run().output == "predicted p"
    child.start(kind="training", n=2)
    assert child.finish().output == "trained 2"
    child.start(kind="training", n=0)
    assert child.finish().error == "Training failed: ValueError: zero"


def test_in_train_mode_predictions_call_train(serve) -> None:
    child = serve(TRAINED, train="predict.py:train", mode="train")
    assert child.run(n=3).output == "trained 3"
    assert child.setup_logs == []


def test_without_train_a_training_calls_predict(serve) -> None:
    child = serve(TRAINED)
    child.start(kind="training", x="t")
    assert child.finish().output == "predicted t"


def test_a_sync_train_in_an_async_model(serve) -> None:
    child = serve(
        """
        import threading
        class Predictor:
            async def predict(self) -> str:
                return "p"
        def train(n: int = 1) -> bool:
            print("training")
            return threading.current_thread() is threading.main_thread()
        """,
        train="predict.py:train",
    )
    child.start(kind="training")
    outcome = child.finish()
    assert outcome.output is False and outcome.logs == "training\n"
    assert child.run().output == "p"


def test_an_async_train_in_a_sync_model(serve) -> None:
    child = serve(
        """
        import asyncio
        class Predictor:
            def predict(self) -> str:
                return "p"
        async def train(n: int = 1) -> str:
            await asyncio.sleep(0)
            return "t"
        """,
        train="predict.py:train",
    )
    child.start(kind="training")
    assert child.finish().output == "t"
    assert child.run().output == "p"


def test_a_decorated_coroutine_function_is_awaited(serve) -> None:
    child = serve("""
        import asyncio, functools
        def logged(f):
            @functools.wraps(f)
            def wrapper(*args, **kwargs):
                return f(*args, **kwargs)
            return wrapper
        class Predictor:
            @logged
            async def predict(self, x: str = "v") -> str:
                await asyncio.sleep(0)
                print("inside")
                return x
    """)
    outcome = child.run()
    assert (outcome.output, outcome.logs) == ("v", "inside\n")


def test_context_variables_do_not_leak_into_the_next_job(serve) -> None:
    child = serve("""
        from contextvars import ContextVar
        seen = ContextVar("seen", default="nothing")
        class Predictor:
            def setup(self):
                seen.set("setup")
            def predict(self, x: str) -> str:
                before = seen.get()
                seen.set(x)
                return before
    """)
    assert [child.run(x="1").output, child.run(x="2").output] == ["setup", "setup"]


def test_large_inputs_are_read_from_a_file(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self, x: str) -> int:
                return len(x)
    """)
    path = child.scratch / "input.json"
    path.write_text(json.dumps({"x": "é" * 100}))
    child.start(extra={"input": None, "input_file": str(path)})
    assert child.finish().output == 100
    assert not path.exists()


def test_numbers_keep_every_digit(serve) -> None:
    child = serve("""
        from typing import Any
        class Predictor:
            def predict(self, x: dict) -> list[str]:
                return [repr(v) for v in x.values()]
    """)
    sent = {
        "a": 2**63,
        "b": 2**64 + 1,
        "c": -(2**70),
        "d": 1.5,
        "e": 1e300,
        "f": [3],
        "g": {"h": None},
        "i": "é\n😀",
    }
    assert child.run(x=sent).output == [repr(v) for v in sent.values()]


def test_deep_inputs_do_not_end_the_child(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self, x: dict) -> int:
                n = 0
                while x:
                    x = x["x"]; n += 1
                return n
    """)

    def nested(n: int) -> dict:
        value: dict = {}
        for _ in range(n):
            value = {"x": value}
        return value

    assert child.run(x=nested(300)).output == 300
    assert "nested deeper" in child.run(x=nested(900)).error


@pytest.mark.parametrize("how", ["async def predict", "def predict"])
def test_sys_exit_in_a_task_of_user_code_is_a_failed_job(serve, how: str) -> None:
    body = "return await task()" if how.startswith("async") else "return task()"
    child = serve(f"""
        import asyncio, sys
        async def leave():
            sys.exit(3)
        async def task():
            await asyncio.create_task(leave())
        class Predictor:
            {how}(self, x: str = "") -> str:
                if x:
                    return x
                {body}
    """)
    assert child.run().error.endswith("SystemExit: 3")
    assert child.run(x="ok").output == "ok"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (r"return pathlib.Path('/tmp/no\udcff')", "not found"),
        ("raise ValueError('x' * 70_000_000)", "ValueError: xxx"),
        ("cog.current_scope().record_metric('a', 'x' * 70_000_000)", "metric `a`"),
    ],
    ids=["surrogate in a file name", "exception of 70 MB", "metric of 70 MB"],
)
def test_an_oversized_or_invalid_text_fails_only_its_job(serve, body: str, words: str) -> None:
    child = serve(
        "import cog, pathlib\nfrom typing import Any\nclass Predictor:\n"
        "    def predict(self, bad: bool = False) -> Any:\n"
        f"        if bad:\n            {body}\n        return 'fine'\n"
    )
    assert words in child.run(bad=True).error
    assert child.run().output == "fine"

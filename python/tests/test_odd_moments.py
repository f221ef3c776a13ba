"""Odd values and odd moments that once took the child, or a slot, with them."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (r"return pathlib.Path('/tmp/no\udcff')", "not found"),
        ("raise ValueError('x' * 70_000_000)", "ValueError: xxx"),
        ("cog.current_scope().record_metric('a', 'x' * 70_000_000)", "metric `a`"),
    ],
    ids=["surrogate in a file name", "exception of 70 MB", "metric of 70 MB"],
)
def test_a_text_that_does_not_fit_fails_its_job_alone(serve, body: str, words: str) -> None:
    child = serve(
        "import cog, pathlib\nfrom typing import Any\nclass Predictor:\n"
        "    def predict(self, bad: bool = False) -> Any:\n"
        f"        if bad:\n            {body}\n        return 'fine'\n"
    )
    assert words in child.run(bad=True).error
    assert child.run().output == "fine"


def test_a_job_whose_task_is_canceled_by_another_ends(serve) -> None:
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


def test_a_mapping_that_answers_every_attribute_is_not_a_file(serve) -> None:
    child = serve(
        """
        from typing import Any
        class Loose(dict):
            __getattr__ = dict.get
        class Predictor:
            def predict(self) -> Any:
                return Loose(a=1)
        """
    )
    assert child.run().output == {"a": 1}


def test_subprocesses_can_be_interrupted(serve) -> None:
    child = serve(
        """
        import signal, subprocess
        class Predictor:
            def predict(self) -> int:
                process = subprocess.Popen(["sleep", "30"])
                process.send_signal(signal.SIGINT)
                return process.wait()
        """
    )
    assert child.run().output == -2

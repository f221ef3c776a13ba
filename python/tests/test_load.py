"""Loading the model, and the errors if it cannot be loaded."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("source", "ref", "stage", "reason"),
    [
        ("import nothing_like_this\ndef f() -> str: return ''", "predict.py:f", "load",
         "failed to load predictor: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("class Predictor:\n    def __init__(self): raise OSError('disk')\n    def run(self) -> str: return ''", "predict.py", "load",  # noqa: E501
         "failed to load predictor: OSError: disk"),
        ("class Predictor:\n    def setup(self): raise RuntimeError('boom')\n    def run(self) -> str: return ''", "predict.py", "setup",  # noqa: E501
         "setup failed: RuntimeError: boom"),
        ("class Predictor:\n    async def setup(self): raise RuntimeError('boom')\n    def run(self) -> str: return ''", "predict.py", "setup",  # noqa: E501
         "setup failed: RuntimeError: boom"),
        ("import sys\nclass Predictor:\n    def setup(self): sys.exit(4)\n    def run(self) -> str: return ''", "predict.py", "setup",  # noqa: E501
         "setup failed: SystemExit: 4"),
    ],
)  # fmt: skip
def test_load_and_setup_failures_report_stage_and_reason(
    launch, source: str, ref: str, stage: str, reason: str
) -> None:
    fatal = launch(source, ref=ref).fatal()
    # An import error is followed by lines about the packages of the model.
    assert (fatal["stage"], fatal["reason"].splitlines()[0]) == (stage, reason)
    assert "Traceback" in fatal["traceback"] and "tidegate/child.py" not in fatal["traceback"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class P:\n    def run(self) -> str: return ''\n    def predict(self) -> str: return ''",
         "must define either run() or predict(), not both"),
        ("class P:\n    pass", "run or predict method not found: P"),
        ("from cog import BasePredictor\nclass P(BasePredictor):\n    pass",
         "run or predict method not found: P"),
        ("def f() -> str\n    return ''", "predict.py"),
        ("x = 1", "P"),
    ],
)  # fmt: skip
def test_a_file_without_a_valid_predictor_is_rejected(launch, source: str, words: str) -> None:
    assert words in launch(source, ref="predict.py:P").fatal()["reason"]


def test_a_syntax_error_reports_its_location(launch) -> None:
    child = launch("x = 1\nclass P:\n  def run(self) -> str: return (\n", ref="predict.py:P")
    reason = child.fatal()["reason"]
    assert "predict.py" in reason and "3" in reason


def test_a_syntax_error_in_another_file_reports_its_location(launch) -> None:
    child = launch(
        "import other\nclass P:\n    def run(self) -> str: return ''",
        ref="predict.py:P",
        files={"other.py": "a =\n"},
    )
    reason = child.fatal()["reason"]
    assert reason.startswith("failed to load predictor: SyntaxError") and "other.py`, line 1" in reason


def test_a_missing_model_file_is_named_in_the_error(launch) -> None:
    assert "nowhere.py" in launch("", ref="nowhere.py:P").fatal()["reason"]


def test_a_schema_error_names_file_line_and_parameter(launch) -> None:
    fatal = launch("class P:\n    def run(self, x: list) -> str: return ''", ref="predict.py:P").fatal()
    assert fatal["stage"] == "schema"
    assert "predict.py:2" in fatal["reason"] and "`x`" in fatal["reason"]


def test_several_slots_require_an_async_model(launch) -> None:
    fatal = launch("def f() -> str: return ''", ref="predict.py:f", slots=2).fatal()
    assert fatal["reason"] == "COG_MAX_CONCURRENCY > 1 requires an async run() or predict() method"
    assert fatal["stage"] == "load"


def test_runner_is_the_default_name(serve) -> None:
    source = """
        class Predictor:
            def run(self) -> str: return "predictor"
        class Runner:
            def run(self) -> str: return "runner"
    """
    assert serve(source, ref="predict.py").run().output == "runner"


def test_the_concurrent_decorator_sets_the_number_of_slots(serve) -> None:
    source = """
        from cog import concurrent
        class Predictor:
            @concurrent(max=3)
            async def predict(self) -> str: return "v"
    """
    assert serve(source).ready["slots"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("env", "seen"), [({"COG_WEIGHTS": "w.bin"}, "'w.bin'"), ({"COG_WEIGHTS": ""}, "None")]
)
def test_setup_gets_weights(serve, env: dict[str, str], seen: str) -> None:
    child = serve(
        """
        class Predictor:
            def setup(self, weights=None):
                self.weights = weights
            def predict(self) -> str: return repr(self.weights)
        """,
        env=env,
    )
    assert child.run().output == seen


def test_async_setup_shares_the_loop_of_the_jobs(serve) -> None:
    child = serve("""
        import asyncio
        class Predictor:
            async def setup(self):
                self.loop = asyncio.get_running_loop()
            async def predict(self) -> bool:
                return self.loop is asyncio.get_running_loop()
    """)
    assert child.run().output is True


def test_async_setup_of_a_sync_model(serve) -> None:
    child = serve("""
        import asyncio
        class Predictor:
            async def setup(self):
                await asyncio.sleep(0)
                self.x = "set"
            def predict(self) -> str:
                return self.x
    """)
    assert child.run().output == "set"


def test_the_model_runs_in_its_folder_and_may_import_sibling_modules(serve) -> None:
    child = serve(
        """
        import os, sys, pickle
        from lib import neighbour
        import json
        class Thing: pass
        class Predictor:
            def predict(self) -> list[str]:
                pickle.loads(pickle.dumps(Thing()))
                folder = os.path.basename(os.getcwd())
                return [neighbour.NAME, folder, __name__, " ".join(sys.argv), json.NAME]
        """,
        files={"lib/neighbour.py": "NAME = 'n'", "json.py": "NAME = 'the model has its own json'"},
    )
    assert child.run().output == ["n", "model", "predict", "predict.py", "the model has its own json"]


def test_a_train_method_shares_the_predictor_object(serve) -> None:
    child = serve(
        """
        class Predictor:
            def setup(self): self.n = getattr(self, "n", 0) + 1
            def predict(self) -> int: return self.n
            def train(self, k: int = 1) -> int:
                self.n += k
                return self.n
        """,
        train="predict.py:Predictor",
    )
    child.start(kind="training", k=5)
    assert child.finish().output == 6
    assert child.run().output == 6


def test_user_code_runs_on_the_main_thread(serve) -> None:
    child = serve("""
        import signal
        class Predictor:
            def predict(self) -> str:
                signal.signal(signal.SIGUSR1, signal.SIG_IGN)
                return "v"
    """)
    assert child.run().output == "v"

"""Modules that the child imports, and the replacement for `cog`."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_shim_has_everything_that_cog_exports(serve) -> None:
    child = serve("""
        import cog, coglet, coglet._sdk
        from cog import *
        from cog.types import Path as P, ConcatenateIterator as C
        from cog.predictor import BasePredictor as B
        from cog.input import Input as I
        from cog.model import BaseModel as M
        class Out(cog.BaseModel):
            a: int
        class Predictor:
            def predict(self, x: str = I(default="d")) -> Out:
                assert P is cog.Path and C is cog.ConcatenateIterator
                assert B is cog.BasePredictor and M is cog.BaseModel
                assert ConcatenateIterator[str] and AsyncConcatenateIterator[str]
                assert coglet.server.active is True
                assert coglet.CancelationException is cog.CancelationException
                assert not isinstance(getattr(coglet, "__file__", None), str)
                assert cog.Secret("a") == cog.Secret("a")
                assert str(cog.File.validate("data:,x").read()) == "b'x'"
                missing = [name for name in cog.__all__ if not hasattr(cog, name)]
                assert not missing, missing
                return Out(a=1)
    """)
    assert child.run().output == {"a": 1}


def test_an_installed_cog_takes_precedence_over_the_shim(serve, tmp_path) -> None:
    (tmp_path / "cog").mkdir()
    (tmp_path / "cog" / "__init__.py").write_text("__version__ = '9.9'\n")
    child = serve(
        "import cog\ndef f() -> str: return cog.__file__\n",
        ref="predict.py:f",
        env={"PYTHONPATH": f"{os.path.dirname(os.path.dirname(__file__))}:{tmp_path}"},
    )
    assert child.run().output.startswith(str(tmp_path))
    assert child.ready["sdk"] == "9.9"


def test_the_child_does_not_load_what_a_plain_model_does_not_need(serve) -> None:
    child = serve("""
        import sys
        class Predictor:
            def predict(self) -> list[str]:
                return sorted(sys.modules)
    """)
    loaded = set(child.run().output)
    heavy = {
        "asyncio",
        "inspect",
        "typing",
        "dataclasses",
        "json",
        "re",
        "enum",
        "threading",
        "traceback",
        "ast",
        "tidegate.schema",
    }
    assert not heavy & loaded, heavy & loaded


def test_importing_the_package_is_cheap() -> None:
    code = "import sys; before = set(sys.modules); import tidegate; print(sorted(set(sys.modules) - before))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "['tidegate']"

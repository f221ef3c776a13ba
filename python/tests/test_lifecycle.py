"""The child as a whole: health, shutdown, the end of the server, and `import cog`."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

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
def test_what_a_healthcheck_says(
    serve, body: str, error: str | None, healthcheck: str, asynchronous: bool
) -> None:
    child = serve(model(body, asynchronous=asynchronous, healthcheck=healthcheck))
    assert child.ready["has_healthcheck"] is True
    assert check(child) == ("healthy" if error is None else "unhealthy", error)


@pytest.mark.parametrize(
    ("asynchronous", "job"), [(False, "time.sleep(30)"), (True, "await asyncio.sleep(30)")]
)
def test_health_is_checked_while_a_job_runs(serve, asynchronous: bool, job: str) -> None:
    child = serve(model("return True", job=job, asynchronous=asynchronous))
    name = child.start()
    assert child.slots[0].recv() == {"log": {"source": "stdout", "data": "begin\n"}}
    assert check(child)[0] == "healthy"
    child.cancel(name)
    assert child.finish().logs == "", "the check's own line does not belong to the job"


def test_a_healthcheck_that_hangs_is_given_up(serve) -> None:
    child = serve(model("time.sleep(60)"))
    error = "Healthcheck failed: user-defined healthcheck timed out after 5.0 seconds"
    assert check(child) == ("unhealthy", error)
    assert child.run(x="v").output == "v"


def test_without_a_healthcheck_the_model_is_well(serve) -> None:
    child = serve("def f() -> str: return ''", ref="predict.py:f")
    assert child.ready["has_healthcheck"] is False
    assert check(child) == ("healthy", None)


@pytest.mark.parametrize(
    ("asynchronous", "job"), [(False, "time.sleep(0.3)"), (True, "await asyncio.sleep(0.3)")]
)
def test_shutdown_finishes_what_runs(serve, asynchronous: bool, job: str) -> None:
    goodbye = "\n    import atexit\n    atexit.register(lambda: print('goodbye'))"
    child = serve(goodbye + model("return True", job=job, asynchronous=asynchronous))
    child.start(x="v")
    child.slots[0].recv()
    child.control.send("shutdown")
    assert child.control_until("shutting_down") == "shutting_down"
    assert child.finish().output == "v"
    child.operator_log("goodbye")
    assert child.process.wait(5) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_closed_slots_end_the_child(serve, asynchronous: bool) -> None:
    child = serve(model("return True", asynchronous=asynchronous))
    child.sockets[0].close()
    assert child.process.wait(5) == 0


def test_threads_that_never_end_do_not_keep_the_child(serve) -> None:
    child = serve("""
        import atexit, threading, time
        class Predictor:
            def setup(self):
                threading.Thread(target=time.sleep, args=(60,)).start()
                atexit.register(time.sleep, 60)
            def predict(self) -> str:
                return "v"
    """)
    child.control.send("shutdown")
    started = time.monotonic()
    assert child.process.wait(5) == 0
    assert time.monotonic() - started < 2


def test_what_the_model_takes_is_said_before_it_is_loaded(launch) -> None:
    source = """
    print("loaded")
    class Predictor:
        def predict(self, n: int) -> int:
            return n
    """
    child = launch(source)
    described = child.control.recv()["described"]["schema"]
    assert described["components"]["schemas"]["Input"]["required"] == ["n"]
    child.until_ready()
    assert child.setup_logs == ["loaded\n"]
    assert child.ready["schema"] == described


def test_shutdown_during_setup_ends_the_child(launch) -> None:
    child = launch("""
        import time
        class Predictor:
            def setup(self):
                print("in setup")
                time.sleep(60)
            def predict(self) -> str:
                return "v"
    """)
    child.control_until("log")
    child.control.send("shutdown")
    assert child.process.wait(5) == 0


@pytest.mark.parametrize(
    "job", ["time.sleep(60)", "while True: pass", "__import__('ctypes').PyDLL(None).sleep(60)"]
)
def test_the_end_of_the_server_ends_the_child(serve, job: str) -> None:
    child = serve(model("return True", job=job))
    child.start()
    child.slots[0].recv()
    child.process.stdin.close()
    child.process.wait(5)


def test_the_end_of_the_server_ends_what_the_model_started(launch) -> None:
    source = """
        import subprocess, sys
        class Predictor:
            def predict(self) -> int:
                return subprocess.Popen(["sleep", "60"]).pid
    """
    child = launch(source, group=True).until_ready()
    pid = child.run().output
    child.process.stdin.close()
    child.process.wait(5)
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_garbage_on_a_slot_ends_the_child_with_a_reason(serve) -> None:
    child = serve(model("return True"))
    body = b"[]"
    child.slots[0].send_raw(struct.pack("<I", len(body)) + body)
    fatal = child.control_until("fatal")
    assert fatal["stage"] == "run" and "not a job" in fatal["reason"]
    assert child.process.wait(5) == 1


def test_ctrl_c_is_the_servers_business(serve) -> None:
    child = serve(model("return True"))
    child.process.send_signal(signal.SIGINT)
    assert child.run(x="v").output == "v"


def test_a_signal_handler_of_the_model_runs_between_jobs(serve) -> None:
    child = serve("""
        import signal
        got = []
        class Predictor:
            def setup(self):
                signal.signal(signal.SIGUSR1, lambda *_: got.append(1) or print("usr1"))
            def predict(self) -> int:
                return len(got)
    """)
    child.process.send_signal(signal.SIGUSR1)
    child.operator_log("usr1")
    assert child.run().output == 1


def test_everything_that_cog_exports_is_there(serve) -> None:
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


def test_an_installed_cog_wins_over_the_shim(serve, tmp_path) -> None:
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

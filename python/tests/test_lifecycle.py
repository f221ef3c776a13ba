"""The lifecycle of the child: schema, shutdown, signals, and the end of the server."""

from __future__ import annotations

import os
import signal
import struct
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
"""


def model(*, job: str = "pass", asynchronous: bool = False) -> str:
    return MODEL.format(a="async " if asynchronous else "", w=job)


@pytest.mark.parametrize(
    ("asynchronous", "job"), [(False, "time.sleep(0.3)"), (True, "await asyncio.sleep(0.3)")]
)
def test_shutdown_waits_for_the_running_job(serve, asynchronous: bool, job: str) -> None:
    goodbye = "\n    import atexit\n    atexit.register(lambda: print('goodbye'))"
    child = serve(goodbye + model(job=job, asynchronous=asynchronous))
    child.start(x="v")
    child.slots[0].recv()
    child.control.send("shutdown")
    assert child.control_until("shutting_down") == "shutting_down"
    assert child.finish().output == "v"
    child.operator_log("goodbye")
    assert child.process.wait(5) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_closed_slots_end_the_child(serve, asynchronous: bool) -> None:
    child = serve(model(asynchronous=asynchronous))
    child.sockets[0].close()
    assert child.process.wait(5) == 0


def test_threads_that_never_end_do_not_delay_the_exit(serve) -> None:
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


def test_the_schema_is_sent_before_the_model_is_loaded(launch) -> None:
    source = """
    print("loaded")
    class Predictor:
        def predict(self, n: int) -> int:
            return n
    """
    child = launch(source)
    schema = child.control.recv()["described"]["schema"]
    assert schema["components"]["schemas"]["Input"]["required"] == ["n"]
    child.until_ready()
    assert child.setup_logs == ["loaded\n"]
    assert child.ready["schema"] == schema


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
def test_the_child_exits_with_the_server(serve, job: str) -> None:
    child = serve(model(job=job))
    child.start()
    child.slots[0].recv()
    child.process.stdin.close()
    child.process.wait(5)


def test_processes_of_the_model_end_with_the_server(launch) -> None:
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


def test_an_invalid_message_on_a_slot_ends_the_child_with_a_reason(serve) -> None:
    child = serve(model())
    body = b"[]"
    child.slots[0].send_raw(struct.pack("<I", len(body)) + body)
    fatal = child.control_until("fatal")
    assert fatal["stage"] == "run" and "not a job" in fatal["reason"]
    assert child.process.wait(5) == 1


def test_the_child_ignores_ctrl_c(serve) -> None:
    child = serve(model())
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

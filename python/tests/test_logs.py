"""Every printed line goes to the log of its job, and to no other."""

from __future__ import annotations

import time

import pytest


def test_lines_are_sent_as_they_are_printed(serve) -> None:
    child = serve("""
        import sys, logging
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        class Predictor:
            def predict(self) -> str:
                print("one")
                print("two\\nthree", file=sys.stderr)
                logging.info("four")
                sys.stdout.write("five")
                return "v"
    """)
    outcome = child.run()
    lines = [(m["log"]["source"], m["log"]["data"]) for m in outcome.messages if "log" in m]
    assert lines == [
        ("stdout", "one\n"),
        ("stderr", "two\n"),
        ("stderr", "three\n"),
        ("stderr", "four\n"),
        ("stdout", "five"),
    ]


def test_an_unfinished_line_stays_with_its_job(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self, x: str) -> str:
                print(x, end="")
                return x
    """)
    assert [child.run(x="a").logs, child.run(x="b").logs] == ["a", "b"]


def test_flush_sends_an_unfinished_line(serve) -> None:
    child = serve("""
        import time
        class Predictor:
            def predict(self) -> str:
                print("half", end="", flush=True)
                time.sleep(30)
    """)
    child.start()
    assert child.slots[0].recv() == {"log": {"source": "stdout", "data": "half"}}


def test_output_below_python_goes_only_to_the_servers_stderr(serve) -> None:
    child = serve("""
        import os, subprocess, sys
        class Predictor:
            def predict(self) -> str:
                os.write(1, b"garbage on fd 1\\n")
                os.write(2, b"garbage on fd 2\\n")
                subprocess.run([sys.executable, "-c", "print('from a subprocess')"])
                pid = os.fork()
                if pid == 0:
                    print("from a fork")
                    os._exit(0)
                os.waitpid(pid, 0)
                return repr(sys.stdin.read())
    """)
    outcome = child.run()
    assert outcome.logs == ""
    assert outcome.output == "''"
    text = child.stderr_path.read_text()
    for part in ("garbage on fd 1", "garbage on fd 2", "from a subprocess", "from a fork"):
        assert part in text
    assert child.run().kind == "done"


@pytest.mark.parametrize(
    "how",
    ["threading.Thread(target=late).start()", "_thread.start_new_thread(late, ())", "pool.submit(late)"],
)
def test_a_late_thread_prints_into_the_servers_log(serve, how: str) -> None:
    child = serve(f"""
        import _thread, threading
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        gate = threading.Event()
        printed = threading.Event()
        def late():
            print("early")
            gate.wait()
            print("late")
            printed.set()
        class Predictor:
            def predict(self, x: str) -> str:
                if x == "start":
                    {how}
                else:
                    gate.set()
                    printed.wait()
                return x
    """)
    child.start(x="start")
    first = child.finish()
    second = child.run(x="next")
    assert second.logs == ""
    assert first.logs in ("early\n", "")
    child.operator_log("late")


def test_threads_print_into_the_job_that_started_them(serve) -> None:
    child = serve(
        """
        import asyncio, threading
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        class Predictor:
            async def predict(self, x: str) -> str:
                thread = threading.Thread(target=print, args=("thread " + x,))
                thread.start()
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(pool, print, "pool " + x)
                await loop.run_in_executor(None, print, "default pool " + x)
                await asyncio.to_thread(print, "to_thread " + x)
                await asyncio.gather(say("task " + x))
                thread.join()
                return x
        async def say(x):
            print(x)
        """,
        slots=2,
    )
    for _ in range(3):
        child.start(0, x="a")
        child.start(1, x="b")
        for slot, x in ((0, "a"), (1, "b")):
            expected = {f"{kind} {x}" for kind in ("thread", "pool", "default pool", "to_thread", "task")}
            assert set(child.finish(slot).logs.splitlines()) == expected


def test_a_thread_of_setup_prints_into_the_running_job(serve) -> None:
    child = serve("""
        import threading
        ask, answered = threading.Event(), threading.Event()
        def worker():
            while True:
                ask.wait(); ask.clear()
                print("from the worker")
                answered.set()
        class Predictor:
            def setup(self):
                threading.Thread(target=worker, daemon=True).start()
            def predict(self) -> str:
                answered.clear(); ask.set(); answered.wait()
                return "v"
    """)
    assert child.run().logs == "from the worker\n"


def test_the_streams_behave_like_text_files(serve) -> None:
    child = serve("""
        import io, sys
        class Predictor:
            def predict(self) -> list[str]:
                out = sys.stdout
                out.writelines(["a", "b\\n"])
                out.buffer.write(b"caf\\xc3")
                out.buffer.write(bytearray(b"\\xa9\\n"))
                out.reconfigure(line_buffering=True)
                print("\\ud800")
                with out:
                    pass
                try:
                    out.write(b"x")
                except TypeError as e:
                    print(e)
                assert sys.__stdout__ is out and sys.__stderr__ is sys.stderr
                facts = [out.isatty(), out.encoding, out.fileno(), sys.stderr.fileno()]
                facts += [out.closed, out.write("é\\n")]
                facts += [isinstance(out, io.TextIOBase), out.writable(), out.readable(), out.name]
                return [str(fact) for fact in facts]
    """)
    outcome = child.run()
    assert outcome.output == ["False", "utf-8", "1", "2", "False", "2", "True", "True", "False", "<stdout>"]
    assert outcome.logs == "ab\ncafé\n\\ud800\nwrite() argument must be str, not bytes\né\n"


def test_a_very_long_line_is_truncated(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self) -> str:
                print("x" * (6 << 20))
                print("next")
                return "v"
    """)
    outcome = child.run()
    line, following = [m["log"]["data"] for m in outcome.messages if "log" in m]
    assert line.startswith("x" * (4 << 20) + " [line truncated: 2097152 more bytes]")
    assert following == "next\n"


def test_excess_output_outside_of_jobs_is_dropped_and_reported(serve) -> None:
    child = serve("""
        class Predictor:
            state = "dry"
            def predict(self) -> str:
                return self.state
            def healthcheck(self) -> bool:
                self.state = "flooding"
                for _ in range(200_000):
                    print("x" * 100)
                self.state = "flooded"
                return True
    """)
    child.control.send({"healthcheck": {"id": 1}})
    # The control channel is not read meanwhile, so the child must drop lines; jobs continue.
    deadline = time.monotonic() + 60
    seen = set()
    while "flooded" not in seen:
        assert time.monotonic() < deadline
        seen.add(child.run().output)
    assert "flooding" in seen
    assert child.control_until("dropped_logs")["count"] > 0


def test_setup_logs_come_before_ready(serve) -> None:
    child = serve("""
        print("import")
        class Predictor:
            def setup(self):
                for n in range(100):
                    print(n)
                print("unfinished", end="")
            def predict(self) -> str:
                return "v"
    """)
    assert child.setup_logs == ["import\n", *(f"{n}\n" for n in range(100)), "unfinished"]


def test_flush_after_the_end_of_a_job_goes_to_the_servers_log(serve) -> None:
    child = serve("""
        import threading
        gate, printed = threading.Event(), threading.Event()
        def late():
            gate.wait()
            print("late", end="", flush=True)
            printed.set()
        class Predictor:
            def predict(self, x: str) -> str:
                if x == "start":
                    threading.Thread(target=late).start()
                else:
                    gate.set()
                    printed.wait()
                return x
    """)
    child.run(x="start")
    assert child.run(x="next").logs == ""
    child.operator_log("late")

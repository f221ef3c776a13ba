"""Ways for a process to end."""

import ctypes
import os
import signal
import threading
import time


def exit(**_):
    os._exit(3)


def exit_well(**_):
    os._exit(0)


def segfault(**_):
    ctypes.string_at(0)


def abort(**_):
    os.abort()


def kill(**_):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_group(**_):
    os.killpg(0, signal.SIGKILL)


def stop(**_):
    """Stops itself, so that it neither goes on nor dies."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_group(**_):
    os.killpg(0, signal.SIGSTOP)


def thread_exits(**_):
    threading.Timer(0.05, os._exit, (3,)).start()
    time.sleep(60)


def stack_overflow(**_):
    """Endless recursion in C, where Python's own limit does not help."""
    import sys

    sys.setrecursionlimit(10**9)
    value = []
    for _i in range(300_000):
        value = [value]
    repr(value)


def memory(number, **_):
    """Takes this many MiB and touches them all."""
    kept = []
    for _i in range(number):
        kept.append(b"x" * (1024 * 1024))
    return len(kept)

"""Suppresses the output of verbose code."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def suppress_output() -> "Iterator[None]":
    """Discards all output in the `with` block, of Python code and of native libraries, in all threads."""
    streams = (sys.stdout, sys.stderr)
    with ExitStack() as stack:
        devnull = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for stream in streams:
            stream.flush()
            stack.callback(_restore, stream.fileno(), os.dup(stream.fileno()))
            os.dup2(devnull.fileno(), stream.fileno())
        # In a child process `print` does not use the descriptors.
        stack.enter_context(redirect_stdout(devnull))
        stack.enter_context(redirect_stderr(devnull))
        yield


def _restore(descriptor: int, copy: int) -> None:
    os.dup2(copy, descriptor)
    os.close(copy)

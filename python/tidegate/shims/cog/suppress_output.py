"""Silence for code that talks too much."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def suppress_output() -> "Iterator[None]":
    """Throws away what is printed meanwhile, by Python or by libraries below it, and in all threads."""
    streams = (sys.stdout, sys.stderr)
    with ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        for stream in streams:
            stream.flush()
            stack.callback(_restore, stream.fileno(), os.dup(stream.fileno()))
            os.dup2(nothing.fileno(), stream.fileno())
        # In a model's process `print` does not go through the descriptors.
        stack.enter_context(redirect_stdout(nothing))
        stack.enter_context(redirect_stderr(nothing))
        yield


def _restore(descriptor: int, copy: int) -> None:
    os.dup2(copy, descriptor)
    os.close(copy)

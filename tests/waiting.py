"""Bounded polling for facts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

#: A loaded machine may need most of it to import a model's packages.
START_TIMEOUT = 45.0
WAIT_TIMEOUT = 15.0
POLL_INTERVAL = 0.01

T = TypeVar("T")


def wait_until(probe: Callable[[], T], what: str, timeout: float = WAIT_TIMEOUT) -> T:
    """Call `probe` until its result is true and return it; fail after `timeout` seconds, naming `what`."""
    deadline = time.monotonic() + timeout
    while not (result := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {timeout} s waiting for {what}; last result: {result!r}")
        time.sleep(POLL_INTERVAL)
    return result

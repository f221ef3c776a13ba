"""Polls a script's `concurrency_modifier` and reports the result to the server.

It polls when a job starts or ends, and once a second; on a thread of its own, so that a handler that blocks
the event loop does not delay it. An invalid result changes nothing; Runpod's own worker would exit and lose
its jobs.
"""

import time
from threading import Event, Thread

from tidegate import _native
from tidegate.error_text import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Modifier = Callable[[int], object]

_POLL_INTERVAL_S = 1.0
# Very short jobs would otherwise cause constant polling.
_MIN_INTERVAL_S = 0.05

_poll_requested = Event()


def start(modifier: "Modifier") -> None:
    """Report the first result, and every change after it."""
    current = _call_modifier(modifier, 1, "")[0]
    _native.send_concurrency(current)
    Thread(target=_poll_loop, args=(modifier, current), name="concurrency_modifier", daemon=True).start()


def poll_soon() -> None:
    """Poll soon: a job has started or ended, and the result may depend on that."""
    _poll_requested.set()


def _poll_loop(modifier: "Modifier", current: int) -> None:
    problem = ""
    while True:
        _poll_requested.wait(_POLL_INTERVAL_S)
        _poll_requested.clear()
        wanted, problem = _call_modifier(modifier, current, problem)
        if wanted != current:
            current = wanted
            _native.send_concurrency(current)
        time.sleep(_MIN_INTERVAL_S)


def _call_modifier(modifier: "Modifier", current: int, previous: str) -> "tuple[int, str]":
    """Return the concurrency and the problem, if any; a repeated problem is logged once."""
    try:
        number = modifier(current)
    except Exception as error:
        problem = f"raised {describe(error)}"
    else:
        if isinstance(number, int) and not isinstance(number, bool):
            return max(0, min(number, 2**31)), ""
        problem = f"returned {number!r:.100}, which is not an integer"
    if problem != previous:
        _native.log("warn", "handler", f"concurrency_modifier {problem}; keeping {current}")
    return current, problem

"""Asks a script again and again how many jobs at once it wants, and tells the server.

When a job begins or ends, and each second in between; on a thread of its own: a handler that blocks the event
loop does not keep the answer back. What cannot be an answer leaves everything as it is, where Runpod's own
worker would end and lose its jobs.
"""

import time
from threading import Event, Thread

from tidegate import _native
from tidegate.report import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Modifier = Callable[[int], object]

_EVERY = 1.0
# Jobs that take no time would have it asked all the time.
_AT_LEAST = 0.05

_nudged = Event()


def begin(modifier: "Modifier") -> None:
    """Tell the first answer now and every other one when it comes."""
    now = _ask(modifier, 1, "")[0]
    _native.wants(now)
    Thread(target=_watch, args=(modifier, now), name="concurrency_modifier", daemon=True).start()


def nudge() -> None:
    """Ask soon: something has changed that it may depend on."""
    _nudged.set()


def _watch(modifier: "Modifier", now: int) -> None:
    complaint = ""
    while True:
        _nudged.wait(_EVERY)
        _nudged.clear()
        wanted, complaint = _ask(modifier, now, complaint)
        if wanted != now:
            now = wanted
            _native.wants(now)
        time.sleep(_AT_LEAST)


def _ask(modifier: "Modifier", now: int, last: str) -> "tuple[int, str]":
    """Return the answer, and what was wrong with it; the same complaint is made once."""
    try:
        number = modifier(now)
    except Exception as error:
        wrong = f"raised {describe(error)}"
    else:
        if isinstance(number, int) and not isinstance(number, bool):
            return max(0, min(number, 2**31)), ""
        wrong = f"gave {number!r:.100}, which is no number"
    if wrong != last:
        _native.remark("warn", "handler", f"concurrency_modifier {wrong}: still {now} at once")
    return now, wrong

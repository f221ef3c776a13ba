"""The checker of clusters: for every invariant that differs, correct histories and violations."""

from __future__ import annotations

import sys

import pytest
from environment import ROOT
from histories import (
    accepted,
    asked,
    begin,
    canceled,
    end,
    event,
    made,
    reply,
    shown,
)

sys.path.insert(0, str(ROOT))

from torture.checker import check
from torture.cluster.history import ClusterHistory

RUN = event(0.0, "run", cluster=True, workers=2, slots=1, grace=3, exit_limit=18, lease=3, wall=0.0)
#: The child 7 belongs to the first director, the child 8 to the second.
CHILDREN = [
    event(0.1, "worker", node="director0", state="up", pid=7),
    event(0.1, "worker", node="director1", state="up", pid=8),
]


def fault(name, target, opened, closed, number=1):
    return [
        event(opened, "fault", w=number, name=name, target=target, phase="open"),
        event(closed, "fault", w=number, name=name, target=target, phase="close"),
    ]


def violated(*events):
    flat = [RUN, *CHILDREN]
    for one in events:
        flat += one if isinstance(one, list) else [one]
    lines = [{"s": 0} | one | {"line": number} for number, one in enumerate(flat, 1)]
    history = ClusterHistory(sorted(lines, key=lambda one: one["t"]))
    return {violation.invariant for violation in check(history)}


def run(t, pid, seconds=0.1, how="ok"):
    marks = {"x": f"x{pid}"}
    return [begin(t, pid=pid) | marks, end(t + seconds, pid=pid, how=how) | marks]


def health(t, took, server=0):
    return event(t, "health", s=server, asked=t - took, took=took, status="READY", fresh=False)


def followed(t, r, *events):
    return [
        asked(t, r, op="follow"),
        event(t + 0.01, "stream", r=r, status=200),
        event(t + 0.2, "followed", r=r, values=2, events=list(events)),
    ]


def deadline_at(t):
    """The end at a time of the log."""
    return {"completed_at": f"1970-01-01T00:00:{t:05.2f}Z"}


KILLED = [
    *fault("kill_director", "director0", 1.1, 2),
    event(1.15, "worker", node="director0", state="down", pid=7),
]
STOPPED = fault("stop_director", "director0", 1.05, 6)
#: Runs on the first director, which is stopped, and again on the second one.
AGAIN = [*accepted(), *run(1.02, 7), *STOPPED, *run(5, 8)]
WAITING = [*made(1, 1, deadline=5)]

HOLDS = {
    "I05 the director was killed": [accepted(), begin(1.02), KILLED, run(5, 8), shown(6, 2, out_runs=["x8"])],
    "I05 the director was cut off": [
        accepted(),
        run(1.02, 7, 5),
        fault("block_link", "director0-api", 1.1, 7),
        run(5, 8),
        shown(6, 2, out_runs=["x8"]),
    ],
    "I06 the director was stopped before it began": [
        accepted(),
        STOPPED,
        run(5, 8),
        shown(5.5, 2),
        run(6, 7),
    ],
    "I07 a cancel after the end": [
        accepted(),
        run(1.02, 8),
        [asked(2, 2, op="cancel"), reply(2.1, 2, 404)],
        shown(3, 3),
    ],
    "I14 PostgreSQL failed": [
        fault("restart_postgres", "postgres", 0.9, 2),
        [asked(1, 1), reply(1.5, 1, 503)],
        run(1.6, 8),
    ],
    "I15 refused during a fault": [
        fault("cut_link", "api0-postgres", 0.9, 2),
        [asked(1, 1), reply(1.5, 1, 503)],
    ],
    "I15 the process was killed": [
        fault("kill_api", "api0", 1, 2),
        asked(0.9, 1),
        event(1.1, "broken", r=1, why="x"),
    ],
    "I15 a client gives up before the end": [
        asked(1, 1, mode="wait"),
        event(41, "broken", r=1, why="TimeoutError: "),
        run(42, 8),
        shown(43, 2),
    ],
    "I16 the process was stopped": [fault("stop_api", "api0", 1, 3), health(3.1, 2.0)],
    "I17 a whole stream": [
        accepted(),
        run(1.02, 8),
        shown(2, 2, values=2),
        followed(1.5, 3, "output", "done"),
    ],
    "I17 the stream of a job that runs again": [
        accepted(),
        run(1.02, 8),
        shown(2, 2, values=3),
        followed(1.5, 3, "output", "error", "done"),
    ],
    "I27 asked before it was accepted": [
        asked(0.9, 5, op="get"),
        reply(1.2, 5, 404),
        accepted(),
        run(2, 8),
        shown(3, 2),
    ],
    "I28 the last lease counts": [AGAIN, shown(6, 2, out_runs=["x8"])],
    "I29 two directors were lost": [
        accepted(),
        begin(1.02),
        KILLED,
        begin(5, pid=8),
        fault("kill_director", "director1", 5.1, 6, 2),
        shown(9, 2, "failed", error="the director was lost, and the job does not run again"),
    ],
    "I30 ended at its deadline": [WAITING, shown(7, 2, "aborted", **deadline_at(6.5))],
    "I30 nothing could be recorded": [
        WAITING,
        fault("cut_link", "api-postgres", 5, 11),
        shown(13, 2, "aborted", **deadline_at(12)),
    ],
}

BREAKS = {
    "I05 without a fault": ({"I05"}, [accepted(), run(1.02, 7), run(2, 8), shown(3, 2, out_runs=["x8"])]),
    "I05 Redis is no excuse": (
        {"I05"},
        [
            accepted(),
            fault("restart_redis", "redis", 1.01, 1.5),
            run(1.02, 7, 2),
            run(2, 8),
            shown(4, 2, out_runs=["x8"]),
        ],
    ),
    "I05 another director was lost": (
        {"I05"},
        [
            accepted(),
            fault("kill_director", "director1", 1.01, 1.5),
            run(1.02, 7, 2),
            run(2, 8),
            shown(4, 2, out_runs=["x8"]),
        ],
    ),
    "I05 at the same time": (
        {"I05"},
        [
            accepted(),
            run(1.02, 7, 6, "canceled"),
            fault("kill_director", "director0", 1.1, 2),
            run(5, 8),
            shown(6, 2, out_runs=["x8"]),
        ],
    ),
    "I06": ({"I06"}, [accepted(), shown(1.5, 2, "canceled"), begin(2.0)]),
    "I07 although the code had returned": (
        {"I07"},
        [accepted(), run(1.02, 8), canceled(1.5, 2), shown(2, 3, out_runs=["x8"])],
    ),
    "I14": ({"I14"}, [asked(1, 1), reply(1.1, 1, 409), run(1.2, 8)]),
    "I15 without a fault": ({"I15"}, [asked(1, 1), reply(1.5, 1, 503)]),
    "I15 another process was killed": (
        {"I15"},
        [fault("kill_api", "api1", 1, 2), asked(0.9, 1), event(1.1, "broken", r=1, why="x")],
    ),
    "I15 no response after the end": (
        {"I15"},
        [asked(1, 1, mode="wait"), run(2, 8), shown(3, 2), event(41, "broken", r=1, why="TimeoutError: ")],
    ),
    "I16": ({"I16"}, [fault("restart_postgres", "postgres", 1, 3), health(3.1, 2.0)]),
    "I17 no final event": (
        {"I17"},
        [
            accepted(),
            run(1.02, 8),
            shown(2, 2),
            fault("restart_redis", "redis", 1, 2),
            followed(1.5, 3, "output"),
        ],
    ),
    "I17 values are missing": (
        {"I17"},
        [accepted(), run(1.02, 8), shown(2, 2, values=3), followed(1.5, 3, "output", "done")],
    ),
    "I27": ({"I27"}, [accepted(), run(1.02, 8), asked(2, 5, op="get"), reply(2.1, 5, 404), shown(3, 2)]),
    "I28 the result of a lost lease": ({"I28"}, [AGAIN, shown(6, 2, out_runs=["x7"])]),
    "I28 a mixture": ({"I28"}, [AGAIN, shown(6, 2, out_runs=["x7", "x8"])]),
    "I29": (
        {"I29"},
        [
            accepted(),
            begin(1.02),
            KILLED,
            shown(9, 2, "failed", error="the director was lost, and the job does not run again"),
        ],
    ),
    "I29 PostgreSQL loses no run": (
        {"I29"},
        [
            accepted(),
            begin(1.02),
            KILLED,
            fault("restart_postgres", "postgres", 5.1, 6, 2),
            shown(9, 2, "failed", error="the director was lost, and the job does not run again"),
        ],
    ),
    "I30": ({"I30"}, [WAITING, shown(13, 2, "aborted", **deadline_at(12))]),
    "I30 no end": (
        {"I01", "I30"},
        [WAITING, event(20, "settle", phase="open"), event(30, "settle", phase="close")],
    ),
    "I30 a director is no excuse for a job that waits": (
        {"I30"},
        [WAITING, fault("stop_director", "director0", 5, 11), shown(13, 2, "aborted", **deadline_at(12))],
    ),
}


@pytest.mark.parametrize("history", HOLDS.values(), ids=HOLDS)
def test_a_correct_history_has_no_violations(history):
    assert violated(*history) == set()


@pytest.mark.parametrize(("invariants", "history"), BREAKS.values(), ids=BREAKS)
def test_a_violation_is_found(invariants, history):
    assert violated(*history) == invariants

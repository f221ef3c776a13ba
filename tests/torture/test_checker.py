"""The checker: for every invariant a history that satisfies it and one that violates it."""

from __future__ import annotations

import sys

import pytest
from environment import ROOT
from histories import (
    M,
    N,
    accepted,
    asked,
    begin,
    canceled,
    end,
    event,
    fault,
    hook,
    killed,
    listed,
    made,
    ran,
    reply,
    shown,
    stream,
)

sys.path.insert(0, str(ROOT))

from torture.checker import check
from torture.event_log import logs_digest
from torture.history import History

RUN = {"t": 0.0, "k": "run", "workers": 1, "slots": 1, "grace": 3, "exit_limit": 25}


def violated(*events):
    flat = [RUN]
    for one in events:
        flat += one if isinstance(one, list) else [one]
    lines = [one | {"line": number} for number, one in enumerate(flat, 1)]
    return {violation.invariant for violation in check(History(sorted(lines, key=lambda one: one["t"])))}


BOTH = [*made(1, 1), *ran(), *shown(2, 2), *made(1.2, 5, M), *ran(M, 1.3), *shown(2, 6, n=M)]


GOOD = [*accepted(), *ran(), *shown(2, 2)]
SENT = [asked(1, 1, hook=True), reply(1.01, 1, status="starting"), *ran()]
TIMES = {"created_at": "1", "started_at": "2", "completed_at": "3"}

#: Begun, and begun again by the server after it.
AGAIN = [*accepted(), begin(1.02), *killed(1.1), begin(1.7, pid=8), end(1.8, pid=8)]

HOLDS = {
    "a killed server's job runs again": [AGAIN, shown(2, 2)],
    "a killed server's job waits again": [
        accepted(),
        begin(1.02),
        shown(1.05, 2, "processing", started_at="2"),
        killed(1.1),
        shown(1.65, 3, "starting"),
        begin(1.7, pid=8),
        shown(1.75, 4, "processing", started_at="4"),
        end(1.8, pid=8),
        shown(2, 5, started_at="4"),
    ],
    "a killed server's last word is noted after its death": [
        accepted(),
        begin(1.02),
        killed(1.1),
        hook(1.1003, 1, "processing"),
        shown(1.65, 3, "starting"),
        begin(1.7, pid=8),
        end(1.8, pid=8),
        shown(2, 5),
    ],
    "a killed server cut a connection": [killed(1), asked(0.9, 1), event(1.01, "broken", r=1, why="reset")],
    "a killed server's caller is gone": [
        asked(1, 1, mode="stream", id=None),
        event(1.01, "stream", r=1, status=200),
        begin(1.02),
        killed(1.1),
        event(1.11, "broken", r=1, why="reset"),
    ],
    "an ordinary job": [GOOD],
    "I02 the same twice": [GOOD, shown(3, 3)],
    "I03 a question that crossed the end": [accepted(), ran(), shown(1.5, 2), shown(1.505, 3, "processing")],
    "I04 taken at the second attempt": [
        SENT,
        hook(1.2, 1, "succeeded", answer=500),
        hook(1.5, 2, "succeeded"),
    ],
    "I07 a cancel that crossed the end": [accepted(), ran(), canceled(1.05, 2), shown(2, 3)],
    "I08 swallowed, but within the grace": [
        accepted(),
        begin(1.02),
        canceled(1.1, 2),
        end(3.0),
        shown(3.1, 3, "canceled"),
    ],
    "I09 one after the other": [GOOD, accepted(M, 1.2, 5), ran(M, 1.3), shown(2, 6, n=M)],
    "I13 times in order": [accepted(), ran(), shown(2, 2, **TIMES), shown(3, 3, **TIMES)],
    "I13 a killed server sent a message that arrived after its end": [
        accepted(),
        begin(1.5, pid=7),
        killed(1.6),
        shown(1.61, 3, "processing", created_at="1", started_at="1.5"),
        begin(2, pid=8),
        end(2.1, pid=8),
        shown(3, 4, **TIMES),
    ],
    "I14 refused": [asked(1, 1), reply(1.1, 1, 409)],
    "I15 broken while there were no descriptors": [
        fault("nofile", 1, 2),
        asked(1.5, 1),
        event(1.6, "broken", r=1, why="reset"),
    ],
    "I16 the server was stopped": [
        fault("stop_server", 1, 3),
        event(3.1, "health", asked=1.1, took=2.0, status="READY", fresh=False),
    ],
    "I17 a whole stream": [stream(1, 1, [0, 1], "completed"), ran()],
    "I19 served again": [
        fault("kill_worker", 1, 1),
        GOOD,
        event(30, "term", pid=1),
        event(31, "exited", pid=1, code=0),
    ],
    "I21 another input is refused": [GOOD, asked(3, 3, op="replay", n=M, id=f"p-{N}"), reply(3.1, 3, 409)],
    "I18 another account is before it": [
        made(1, 1),
        made(1.1, 5, M, account=1),
        ran(M, 1.2),
        ran(N, 1.4),
        shown(2, 2),
        shown(2.1, 6, n=M),
    ],
    "I25 too late, and never begun": [made(1, 1, deadline=5), shown(7, 2, "aborted")],
    "I25 its time was over while it ran": [
        made(1, 1, deadline=5),
        begin(2),
        end(6.1, how="canceled"),
        shown(7, 2, "canceled"),
    ],
    "I26 newest first": [BOTH, listed(3, 9, M, N)],
    "I26 asked before the second was accepted": [BOTH, listed(1.1, 9, N)],
    "I22 canceled while it returned": [accepted(), ran(), canceled(1.05, 2), shown(2, 3, "canceled")],
}

BREAKS = {
    "I01": [accepted(), ran()],
    "I02": [GOOD, shown(3, 3, out="y")],
    "I03": [GOOD, shown(3, 3, "processing")],
    "I04": [SENT, hook(1.2, 1, "succeeded", answer=500), shown(2, 2)],
    "I05": [GOOD, [begin(1.2, pid=8), end(1.3, pid=8)]],
    "I06": [accepted(), shown(1.5, 2, "canceled"), begin(2.0)],
    "I07": [accepted(), begin(1.02), canceled(1.1, 2), end(2.0), shown(3, 3)],
    "I08": [accepted(), begin(1.02), canceled(1.1, 2), end(5.0), shown(5.1, 3, "canceled")],
    "I09": [
        accepted(),
        begin(1.02),
        accepted(M, 1.03, 5),
        begin(1.05, M),
        end(1.2),
        end(1.3, M),
        shown(2, 2),
        shown(2.1, 6, n=M),
    ],
    "I10": [accepted(), ran(), shown(2, 2, out_nonces=[M])],
    "I11": [accepted(), ran(), shown(2, 2, log_nonces=[N, M])],
    "I12": [
        accepted(id=None),
        ran(),
        shown(2, 2),
        [asked(3, 3, n=M, id=None), reply(3.1, 3, id=f"p-{N}")],
        ran(M, 3.2),
        shown(4, 4, n=M),
    ],
    "I13": [accepted(), ran(), shown(2, 2, **TIMES), shown(3, 3, **TIMES | {"started_at": "2.5"})],
    "I14": [asked(1, 1), reply(1.1, 1, 409), ran(t=1.2)],
    "I15": [asked(1, 1), event(1.6, "broken", r=1, why="reset")],
    "I16": [event(3.1, "health", asked=1.1, took=2.0, status="READY", fresh=False)],
    "I17": [stream(1, 1, [0, 2], "completed"), ran()],
    "I18": [accepted(), accepted(M, 1.1, 5), ran(M, 1.2), ran(N, 1.4), shown(2, 2), shown(2.1, 6, n=M)],
    "I19": [
        fault("kill_worker", 2, 2),
        event(3, "load", phase="close"),
        event(30, "term", pid=1),
        event(31, "exited", pid=1, code=0),
    ],
    "I20": [event(1, "term", pid=1), event(40, "exited", pid=1, code=0)],
    "I21": [GOOD, asked(3, 3, op="replay", n=M, id=f"p-{N}"), reply(3.1, 3, 202), ran(M, 3.2)],
    "I22": [accepted(), ran(how="fail"), shown(2, 2)],
    "I25": [made(1, 1, deadline=5), ran(t=6.5), shown(7, 2)],
    "I26": [BOTH, listed(3, 9, N, M)],
    "F2": [asked(1, 1, op="foreign"), reply(1.1, 1, 200)],
    "C6": [
        SENT,
        [one | {"headers": {"webhook-id": "msg_1"}} for one in hook(1.2, 1, "succeeded", answer=500)],
        [one | {"headers": {"webhook-id": "msg_2"}} for one in hook(1.5, 2, "succeeded")],
    ],
    "I24": [
        event(1, "sample", moment="before", pid=1, fds=20, memory=0),
        event(2, "sample", moment="after", pid=1, fds=90, memory=0),
    ],
}


#: What a killed server is no excuse for.
NO_EXCUSE = {
    "accepted and lost": ({"I01"}, [accepted(), killed(1.1)]),
    "ran more often than servers died": ({"I05"}, [AGAIN, begin(1.85, pid=9), end(1.9, pid=9), shown(2, 2)]),
    "over, and then not": ({"I03"}, [GOOD, killed(3), shown(4, 3, "processing")]),
    "over, and began again": ({"I05", "I06"}, [GOOD, killed(3), begin(4, pid=8), end(4.1, pid=8)]),
    "two ends": ({"I02"}, [GOOD, killed(3), shown(4, 3, out="y")]),
    "the terminal webhook has two ids": (
        {"C6"},
        [
            SENT,
            [one | {"headers": {"webhook-id": "msg_1"}} for one in hook(1.2, 1, "succeeded", answer=500)],
            killed(1.3),
            [one | {"headers": {"webhook-id": "msg_2"}} for one in hook(2.5, 2, "succeeded")],
        ],
    ),
    "a cancel was acknowledged and is forgotten": (
        {"I07"},
        [
            accepted(),
            begin(1.02),
            canceled(1.05, 2),
            killed(1.1),
            begin(1.7, pid=8),
            end(1.8, pid=8),
            shown(2, 3),
        ],
    ),
    "a process outlives it": (
        {"I20"},
        [killed(1.1), event(5, "left_behind", pid=1, pids=[7], names=["python"])],
    ),
}


@pytest.mark.parametrize(("invariants", "history"), NO_EXCUSE.values(), ids=NO_EXCUSE)
def test_a_killed_server_does_not_excuse_violations(invariants, history):
    assert violated(*history) == invariants


@pytest.mark.parametrize("history", HOLDS.values(), ids=HOLDS)
def test_a_correct_history_has_no_violations(history):
    assert violated(*history) == set()


@pytest.mark.parametrize(("invariant", "history"), BREAKS.items(), ids=BREAKS)
def test_a_violation_is_found(invariant, history):
    assert violated(*history) == {invariant}


@pytest.mark.parametrize(
    "page",
    [listed(3, 9, N), listed(3, 9), listed(3, 9, M, N, account=1)],
    ids=["one short", "empty", "of another"],
)
def test_a_wrong_list_is_found(page):
    assert violated(BOTH, page) == {"I26"}


def unfair_history(*more: list) -> set[str]:
    """The invariants that two jobs of an account break, with four jobs of another between their starts."""
    fair = RUN | {"fair": True, "accounts": 2}
    mine = [accepted(N, 1, 1, account="a"), accepted(M, 1.1, 2, account="a"), ran(N, 2), ran(M, 20), *more]
    others = []
    for number in range(4):
        nonce = f"n1c2k{number}z"
        others += [accepted(nonce, 1.2, 10 + number, account="b"), ran(nonce, 3 + number)]
    flat = [fair, *[one for part in [*mine, *others] for one in part]]
    lines = [one | {"line": number} for number, one in enumerate(flat, 1)]
    found = check(History(sorted(lines, key=lambda one: one["t"])))
    return {violation.invariant for violation in found}


def test_an_unfairly_delayed_account_is_found():
    assert "I23" in unfair_history()


def test_a_start_counts_although_the_client_did_not_get_the_response():
    nonce = "n1c3k1z"
    without_reply = accepted(nonce, 1.1, 30, account="a")[:1]
    assert "I23" not in unfair_history(without_reply, ran(nonce, 5.5))


def test_the_traceback_of_a_failed_job_needs_no_nonce():
    logs = f"{N} line\nTraceback (most recent call last):\n  File ...\nRuntimeError: {N} fails\n"
    assert logs_digest(logs) == {"log_nonces": [N]}
    assert logs_digest(f"bare\n{logs}")["log_bare"] == "bare"

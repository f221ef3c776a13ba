"""The invariants of single jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torture.event_log import TERMINAL, Event
from torture.history import NEVER, Execution, History, Job, Observation, Request

#: The time by which webhooks may overtake each other in transit.
HOOK_SLACK = 0.010
#: Responses of a killed server may be logged this long after the kill.
REPORT_LAG = 0.25
BEGIN_SLACK = 0.050
#: A cancel and the end of the code may cross within this time.
CANCEL_SLACK = 0.250
#: The interval of the process scan plus the time in which a process dies.
DEATH_SLACK = 0.6


@dataclass(frozen=True)
class Violation:
    """A violated invariant, and the lines of the log that show it."""

    invariant: str
    nonce: str
    what: str
    lines: tuple[int, ...]


def _violation(invariant: str, job: Job, what: str, *lines: int) -> Violation:
    return Violation(invariant, job.nonce, what, tuple(sorted(set(lines))))


def every_accepted_job_ends(history: History) -> Iterator[Violation]:
    """I01: every accepted job has an observed end."""
    for job in history.jobs.values():
        accepted = job.accepted
        if accepted is None or job.terminals or _cannot_be_looked_up(history, accepted):
            continue
        lines = [line for run in job.executions for line in run.lines]
        yield _violation("I01", job, "was accepted, but no end was observed", *accepted.lines, *lines)


def _cannot_be_looked_up(history: History, request: Request) -> bool:
    """Whether the client never learned its id, or another job uses the id now."""
    unnamed = request.id is None and not any(event.get("id") for event in request.sse)
    if request.dropped is not None and unnamed:
        return True
    if request.broken is not None and unnamed and not request.event.get("hook"):
        return True
    if request.broken is not None and not _is_durable(request):
        return True
    return len(history.owners.get(request.id or "", [])) > 1


def _is_durable(request: Request) -> bool:
    """Whether the job survives a kill of the server: it is asynchronous, has an id or a webhook."""
    return request.event["mode"] == "later" or request.id is not None or bool(request.event.get("any_hook"))


def all_observed_ends_agree(history: History) -> Iterator[Violation]:
    """I02: all observed ends have one status, and one output if the job succeeded."""
    for job in history.jobs.values():
        ends = job.terminals
        if len({seen.status for seen in ends}) > 1:
            ends_text = ", ".join(f"{seen.status} by {seen.where}" for seen in _first_of_each(ends))
            yield _violation("I02", job, f"ended in several ways: {ends_text}", *(seen.line for seen in ends))
        outputs = {seen.body.get("out") for seen in ends if seen.status == "succeeded"}
        if len(outputs) > 1:
            yield _violation(
                "I02", job, f"succeeded with {len(outputs)} outputs", *(seen.line for seen in ends)
            )


def _first_of_each(ends: list[Observation]) -> list[Observation]:
    return list({seen.status: seen for seen in reversed(ends)}.values())


def states_never_go_back(history: History) -> Iterator[Violation]:
    """I03: no earlier status is reported after a later one."""
    for job in history.jobs.values():
        by_time = sorted(job.seen, key=lambda seen: seen.t)
        for later in by_time:
            since = later.asked if later.asked is not None else later.t - HOOK_SLACK
            pool = by_time if later.asked is not None else [s for s in by_time if s.where == later.where]
            higher = next((s for s in pool if s.t < since and s.rank > later.rank), None)
            # Jobs of a killed server start again; finished jobs stay finished.
            again = higher and higher.rank < 2 and history.killed(higher.t - REPORT_LAG, later.t)
            if higher is not None and later.where != "stream" and not again:
                what = f"{later.where} says {later.status} after {higher.where} said {higher.status}"
                yield _violation("I03", job, what, higher.line, later.line)


def terminal_webhooks_are_delivered(history: History) -> Iterator[Violation]:
    """I04: the receiver has accepted the terminal webhook."""
    for job in history.jobs.values():
        accepted = job.accepted
        if accepted is None or not accepted.event.get("hook"):
            continue
        ends = [hook for hook in job.hooks if hook["body"].get("status") in TERMINAL]
        if not any(history.answers.get(hook["h"]) == 200 for hook in ends):
            lines = [hook["line"] for hook in job.hooks]
            what = f"its last webhook was never taken ({len(job.hooks)} came)"
            yield _violation("I04", job, what, *accepted.lines, *lines)


def retries_keep_their_id(history: History) -> Iterator[Violation]:
    """C6: the last message of a job has the same `webhook-id` in all its attempts, and no other has it."""
    for job in history.jobs.values():
        last = [hook for hook in job.hooks if hook["body"].get("status") in TERMINAL]
        earlier = [hook for hook in job.hooks if hook not in last]
        ids = {hook.get("headers", {}).get("webhook-id") for hook in last}
        shared = ids & {hook.get("headers", {}).get("webhook-id") for hook in earlier} - {None}
        if len(ids) > 1 or shared:
            what = f"its last message has the ids {sorted(map(str, ids))}"
            yield _violation("C6", job, what, *(hook["line"] for hook in job.hooks))


def jobs_run_once(history: History) -> Iterator[Violation]:
    """I05: no second execution, except for jobs that ran when the server was killed."""
    for job in history.jobs.values():
        if len(job.executions) > history.runs_allowed(job):
            lines = [line for run in job.executions for line in run.lines]
            yield _violation("I05", job, f"ran {len(job.executions)} times", *lines)


def no_execution_starts_after_the_end(history: History) -> Iterator[Violation]:
    """I06: no execution starts after the end was observed."""
    for job in history.jobs.values():
        for run in job.executions:
            if run.begin > job.first_end + BEGIN_SLACK:
                end = min(job.terminals, key=lambda seen: seen.t)
                what = f"began {run.begin - end.t:.3f} s after its end was observed"
                yield _violation("I06", job, what, end.line, run.line)


def acknowledged_cancels_take_effect(history: History) -> Iterator[Violation]:
    """I07: a cancel acknowledged before the end leads to the status `canceled`."""
    for job in history.jobs.values():
        for cancel in job.cancels:
            if cancel.status != 200 or len(history.owners.get(cancel.id or "", [])) > 1:
                continue
            limit = cancel.answered + CANCEL_SLACK
            if cancel.answered >= job.first_end or any(
                _over_by(history, run, limit) for run in job.executions
            ):
                continue
            wrong = [seen for seen in job.terminals if seen.status != "canceled"]
            if wrong:
                lines = [line for run in job.executions for line in run.lines]
                what = f"a cancel was acknowledged, but the job {wrong[0].status}"
                yield _violation("I07", job, what, *cancel.lines, wrong[0].line, *lines)


def _over_by(history: History, run: Execution, limit: float) -> bool:
    """Whether it ended by itself or its process died before the cancel could reach it."""
    ended = run.how in ("ok", "fail", "crash") and run.end <= limit
    return ended or history.downs.get(run.pid, NEVER) <= limit


def no_execution_starts_after_the_deadline(history: History) -> Iterator[Violation]:
    """I25: no execution starts after the deadline of the job."""
    for job in history.jobs.values():
        for run in job.executions if job.deadline_at < NEVER else ():
            held = history.held(job.deadline_at, run.begin, run.pid)
            if run.begin > job.deadline_at + CANCEL_SLACK + held:
                what = f"began {run.begin - job.deadline_at:.2f} s after its deadline"
                yield _violation("I25", job, what, *job.creates[0].lines, *run.lines)


def canceled_code_stops(history: History) -> Iterator[Violation]:
    """I08: no execution of a canceled or abandoned job returns after the grace period."""
    grace = history.run["grace"]
    for job in history.jobs.values():
        canceled = any(seen.status in ("canceled", "aborted") for seen in job.terminals)
        left = [r.dropped["t"] for r in job.creates if r.dropped and r.event["mode"] == "wait"]
        if not canceled and not left:
            continue
        since = min(left if not canceled else [*job.stop_times, job.first_end])
        for run in job.executions:
            held = history.held(since, run.end, run.pid) if run.how == "ok" else 0
            if run.how == "ok" and run.end > since + grace + held:
                what = f"went on for {run.end - since:.2f} s after it was asked to stop, and returned"
                yield _violation("I08", job, what, *run.lines, *(s.line for s in job.terminals[:1]))


def outputs_are_not_mixed(history: History) -> Iterator[Violation]:
    """I10: an output contains only the nonce of its own job."""
    for job, body, line in _bodies(history):
        foreign = [nonce for nonce in body.get("out_nonces", ()) if nonce != job.nonce]
        foreign += [nonce for nonce in [body.get("input")] if nonce and nonce != job.nonce]
        if foreign:
            yield _violation("I10", job, f"its output is that of {', '.join(foreign)}", line)
        elif body.get("status") == "succeeded" and not body.get("out_nonces"):
            yield _violation("I10", job, "succeeded without its own output", line)


def logs_are_not_mixed(history: History) -> Iterator[Violation]:
    """I11: log lines contain only the nonce of their own job."""
    for job, body, line in _bodies(history):
        foreign = [nonce for nonce in body.get("log_nonces", ()) if nonce != job.nonce]
        if foreign:
            yield _violation("I11", job, f"its logs have lines of {', '.join(foreign)}", line)
        elif "log_bare" in body:
            yield _violation("I11", job, f"its logs have a line without a nonce: {body['log_bare']!r}", line)


def _bodies(history: History) -> Iterator[tuple[Job, Event, int]]:
    """Every body that shows a job."""
    for job in history.jobs.values():
        for seen in job.seen:
            yield job, seen.body, seen.line
    for request in history.requests.values():
        owner = history.owner(request, {})
        for event in request.sse:
            if owner and event["event"] in ("output", "log"):
                yield history.job(owner), event, event["line"]


def times_are_in_order(history: History) -> Iterator[Violation]:
    """I13: created <= started <= completed, the same in all observations."""
    for job in history.jobs.values():
        known: dict[str, Observation] = {}
        for seen in sorted(job.seen, key=lambda seen: seen.t):
            times = [
                seen.body[name] for name in ("created_at", "started_at", "completed_at") if name in seen.body
            ]
            # Trailing zeros are omitted.
            if times != sorted(times, key=lambda moment: moment.rstrip("Z")):
                yield _violation("I13", job, f"times are not in order: {times}", seen.line)
            for name in ("created_at", "started_at", "completed_at"):
                if name == "started_at" and name in known and _restarted_between(history, known[name], seen):
                    del known[name]
                first = known.setdefault(name, seen) if name in seen.body else seen
                if first.body.get(name) != seen.body.get(name):
                    what = f"{name} was {first.body[name]} and is {seen.body[name]}"
                    yield _violation("I13", job, what, first.line, seen.line)


def _restarted_between(history: History, earlier: Observation, later: Observation) -> bool:
    """Whether the server was killed between the two observations of an unfinished job."""
    return earlier.rank < 2 and history.killed(earlier.t - REPORT_LAG, later.t) > 0


def refused_jobs_do_not_run(history: History) -> Iterator[Violation]:
    """I14: a refused job neither runs nor sends a webhook."""
    for job in history.jobs.values():
        refused = [r for r in job.creates if 400 <= r.status < 500 or r.status == 503]
        if not refused or job.accepted:
            continue
        for run in job.executions:
            yield _violation("I14", job, "was refused, but ran", *refused[0].lines, *run.lines)
        for hook in job.hooks[:1]:
            yield _violation(
                "I14", job, "was refused, but a webhook arrived", *refused[0].lines, hook["line"]
            )


def succeeded_means_returned(history: History) -> Iterator[Violation]:
    """I22: a job succeeded if and only if its code returned."""
    for job in history.jobs.values():
        if not job.terminals:
            continue
        end = job.terminals[0]
        returned = [run for run in job.executions if run.how == "ok"]
        if end.status == "succeeded" and not returned:
            lines = [line for run in job.executions for line in run.lines]
            yield _violation("I22", job, "succeeded, but its code did not return", end.line, *lines)
        if end.status != "succeeded" and returned and not _excused(history, job, returned[0]):
            error = end.body.get("error", "")
            what = f"its code returned, but it {end.status}: {error}"
            yield _violation("I22", job, what, end.line, *returned[0].lines)


def _excused(history: History, job: Job, run: Execution) -> bool:
    """Whether it was stopped, its process died before it could report, or its file was unreadable."""
    if any(stop < job.first_end for stop in job.stop_times):
        return True
    if history.killed(run.end - 0.05, job.first_end):
        return True
    down = history.downs.get(run.pid, NEVER)
    held = sum(history.overlaps(run.end, down, "stop_worker", "stop_server", "stall"))
    if run.end - 0.05 <= down <= run.end + held + DEATH_SLACK:
        return True
    return run.behave == "file" and history.overlaps_any(run.end, job.first_end, "nofile", slack=0.5)

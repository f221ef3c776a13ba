"""The invariants that speak of one job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torture.events import TERMINAL, Event
from torture.history import NEVER, Execution, History, Job, Request, Seen

#: A webhook may be overtaken by this much on its way.
HOOK_SLACK = 0.010
#: What a server said in its last moment is noted after its death.
SAID_BEFORE = 0.25
BEGIN_SLACK = 0.050
#: A cancel and the end of the code may cross within this time.
CANCEL_SLACK = 0.250
#: Processes are looked at this often, and die some time after their code is told to.
DEATH_SLACK = 0.6


@dataclass(frozen=True)
class Violation:
    """Something that must not be, and the lines of the log that show it."""

    invariant: str
    nonce: str
    what: str
    lines: tuple[int, ...]


def _violation(invariant: str, job: Job, what: str, *lines: int) -> Violation:
    return Violation(invariant, job.nonce, what, tuple(sorted(set(lines))))


def every_accepted_job_ends(history: History) -> Iterator[Violation]:
    """I01: accepted => an end is seen."""
    for job in history.jobs.values():
        accepted = job.accepted
        if accepted is None or job.terminals or _cannot_be_asked_for(history, accepted):
            continue
        lines = [line for run in job.executions for line in run.lines]
        yield _violation("I01", job, "was accepted, and no end was ever seen", *accepted.lines, *lines)


def _cannot_be_asked_for(history: History, request: Request) -> bool:
    """Whether its id was never told to the caller, or names another job now."""
    unnamed = request.id is None and not any(event.get("id") for event in request.sse)
    if request.dropped is not None and unnamed:
        return True
    if request.broken is not None and not _is_kept(request):
        return True
    return len(history.owners.get(request.id or "", [])) > 1


def _is_kept(request: Request) -> bool:
    """Whether the job outlives a server that is killed: somebody may come back for it."""
    return request.event["mode"] == "later" or request.id is not None or bool(request.event.get("any_hook"))


def all_ends_agree(history: History) -> Iterator[Violation]:
    """I02: one status, and one output if it succeeded."""
    for job in history.jobs.values():
        ends = job.terminals
        if len({seen.status for seen in ends}) > 1:
            told = ", ".join(f"{seen.status} by {seen.where}" for seen in _first_of_each(ends))
            yield _violation("I02", job, f"ended in several ways: {told}", *(seen.line for seen in ends))
        outputs = {seen.body.get("out") for seen in ends if seen.status == "succeeded"}
        if len(outputs) > 1:
            yield _violation(
                "I02", job, f"succeeded with {len(outputs)} outputs", *(seen.line for seen in ends)
            )


def _first_of_each(ends: list[Seen]) -> list[Seen]:
    return list({seen.status: seen for seen in reversed(ends)}.values())


def states_only_rise(history: History) -> Iterator[Violation]:
    """I03: nothing lower is told after something higher."""
    for job in history.jobs.values():
        by_time = sorted(job.seen, key=lambda seen: seen.t)
        for later in by_time:
            since = later.asked if later.asked is not None else later.t - HOOK_SLACK
            pool = by_time if later.asked is not None else [s for s in by_time if s.where == later.where]
            higher = next((s for s in pool if s.t < since and s.rank > later.rank), None)
            # What a killed server had begun is begun again; what was over stays over.
            again = higher and higher.rank < 2 and history.killed(higher.t - SAID_BEFORE, later.t)
            if higher is not None and later.where != "stream" and not again:
                what = f"{later.where} says {later.status} after {higher.where} said {higher.status}"
                yield _violation("I03", job, what, higher.line, later.line)


def ends_are_told(history: History) -> Iterator[Violation]:
    """I04: whoever asked for the end by webhook has taken it."""
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
    """I05: no second execution, but for jobs that a killed server had begun."""
    for job in history.jobs.values():
        if len(job.executions) > history.runs_allowed(job):
            lines = [line for run in job.executions for line in run.lines]
            yield _violation("I05", job, f"ran {len(job.executions)} times", *lines)


def nothing_begins_after_the_end(history: History) -> Iterator[Violation]:
    """I06."""
    for job in history.jobs.values():
        for run in job.executions:
            if run.begin > job.first_end + BEGIN_SLACK:
                end = min(job.terminals, key=lambda seen: seen.t)
                what = f"began {run.begin - end.t:.3f} s after its end was told"
                yield _violation("I06", job, what, end.line, run.line)


def cancels_count(history: History) -> Iterator[Violation]:
    """I07: a cancel that was acknowledged in time ends the job as canceled."""
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
                what = f"a cancel was acknowledged, and it {wrong[0].status}"
                yield _violation("I07", job, what, *cancel.lines, wrong[0].line, *lines)


def _over_by(history: History, run: Execution, limit: float) -> bool:
    """Whether it ended by itself, or its process died, before the cancel can have reached it."""
    ended = run.how in ("ok", "fail", "crash") and run.end <= limit
    return ended or history.downs.get(run.pid, NEVER) <= limit


def nothing_begins_too_late(history: History) -> Iterator[Violation]:
    """I25: no execution begins when nobody wants it any more."""
    for job in history.jobs.values():
        for run in job.executions if job.due < NEVER else ():
            held = sum(history.overlaps(job.due, run.begin, "stop_server", "stall"))
            if run.begin > job.due + CANCEL_SLACK + held:
                what = f"began {run.begin - job.due:.2f} s after its time was over"
                yield _violation("I25", job, what, *job.creates[0].lines, *run.lines)


def canceled_code_stops(history: History) -> Iterator[Violation]:
    """I08: no execution of a canceled or abandoned job ends well after the grace."""
    grace = history.run["grace"]
    for job in history.jobs.values():
        canceled = any(seen.status in ("canceled", "aborted") for seen in job.terminals)
        left = [r.dropped["t"] for r in job.creates if r.dropped and r.event["mode"] == "wait"]
        if not canceled and not left:
            continue
        since = min(left if not canceled else [*job.stops, job.first_end])
        for run in job.executions:
            held = sum(history.overlaps(since, run.end, "stop_server", "stall")) if run.how == "ok" else 0
            if run.how == "ok" and run.end > since + grace + held:
                what = f"went on for {run.end - since:.2f} s after its end was asked for, and returned"
                yield _violation("I08", job, what, *run.lines, *(s.line for s in job.terminals[:1]))


def output_is_its_own(history: History) -> Iterator[Violation]:
    """I10."""
    for job, body, line in _told(history):
        foreign = [nonce for nonce in body.get("out_nonces", ()) if nonce != job.nonce]
        foreign += [nonce for nonce in [body.get("input")] if nonce and nonce != job.nonce]
        if foreign:
            yield _violation("I10", job, f"its output is that of {', '.join(foreign)}", line)
        elif body.get("status") == "succeeded" and not body.get("out_nonces"):
            yield _violation("I10", job, "succeeded without its own output", line)


def logs_are_its_own(history: History) -> Iterator[Violation]:
    """I11."""
    for job, body, line in _told(history):
        foreign = [nonce for nonce in body.get("log_nonces", ()) if nonce != job.nonce]
        if foreign:
            yield _violation("I11", job, f"its logs have lines of {', '.join(foreign)}", line)
        elif "log_bare" in body:
            yield _violation("I11", job, f"its logs have a line of nobody: {body['log_bare']!r}", line)


def _told(history: History) -> Iterator[tuple[Job, Event, int]]:
    """Every body that tells of a job."""
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
        known: dict[str, Seen] = {}
        for seen in sorted(job.seen, key=lambda seen: seen.t):
            times = [
                seen.body[name] for name in ("created_at", "started_at", "completed_at") if name in seen.body
            ]
            # Zeros at the end are left out.
            if times != sorted(times, key=lambda moment: moment.rstrip("Z")):
                yield _violation("I13", job, f"times are not in order: {times}", seen.line)
            for name in ("created_at", "started_at", "completed_at"):
                if name == "started_at" and name in known and _begun_again(history, known[name], seen):
                    del known[name]
                first = known.setdefault(name, seen) if name in seen.body else seen
                if first.body.get(name) != seen.body.get(name):
                    what = f"{name} was {first.body[name]} and is {seen.body[name]}"
                    yield _violation("I13", job, what, first.line, seen.line)


def _begun_again(history: History, earlier: Seen, later: Seen) -> bool:
    """Whether a server was killed between the two, and the job was not over before."""
    return earlier.rank < 2 and history.killed(earlier.t, later.t) > 0


def refused_is_refused(history: History) -> Iterator[Violation]:
    """I14: what was refused neither runs nor is told of."""
    for job in history.jobs.values():
        refused = [r for r in job.creates if 400 <= r.status < 500 or r.status == 503]
        if not refused or job.accepted:
            continue
        for run in job.executions:
            yield _violation("I14", job, "was refused and ran", *refused[0].lines, *run.lines)
        for hook in job.hooks[:1]:
            yield _violation("I14", job, "was refused and a webhook came", *refused[0].lines, hook["line"])


def success_means_returned(history: History) -> Iterator[Violation]:
    """I22: succeeded iff the code returned."""
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
    """Whether it was stopped, or its process died before it could tell, or its file could not be read."""
    if any(stop < job.first_end for stop in job.stops):
        return True
    if history.killed(run.end - 0.05, job.first_end):
        return True
    down = history.downs.get(run.pid, NEVER)
    held = sum(history.overlaps(run.end, down, "stop_worker", "stop_server", "stall"))
    if run.end - 0.05 <= down <= run.end + held + DEATH_SLACK:
        return True
    return run.behave == "file" and history.inside(run.end, job.first_end, "nofile", slack=0.5)

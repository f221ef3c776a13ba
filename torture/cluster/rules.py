"""The invariants that differ in a cluster, and the list of all invariants of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from torture import rules_jobs as jobs
from torture import rules_server as server
from torture.cluster.history import ClusterHistory
from torture.event_log import TERMINAL
from torture.history import NEVER, Execution, Job, Request
from torture.rules_jobs import BEGIN_SLACK, Violation

#: Seconds after a deadline until a job must have ended that waits, or that runs: the grace period of its
#: cancel follows.
WAITING_LIMIT, RUNNING_LIMIT = 2.5, 5.0
#: Seconds after a fault until the deadlines are checked again.
DEADLINE_INTERVAL = 1.5
#: Connections of a process that ends may break this long around it.
CUT_SLACK = 1.5
#: The errors of jobs that ran too often, and how many lost directors each needs.
_LOST_ERRORS = {"was lost, and the job does not run again": 2, "each was lost before it started": 2}


def _violation(invariant: str, job: Job, what: str, *lines: int) -> Violation:
    return Violation(invariant, job.nonce, what, tuple(sorted(set(lines))))


def _lines(runs: list[Execution]) -> list[int]:
    return [line for run in runs for line in run.lines]


def jobs_run_again_only_if_lost(history: ClusterHistory) -> Iterator[Violation]:
    """I05: a second execution follows only if the director of the first may have lost its lease."""
    for job in history.jobs.values():
        runs = sorted(job.executions, key=lambda run: run.begin)
        if len(runs) > history.runs_allowed(job):
            yield _violation("I05", job, f"ran {len(runs)} times", *_lines(runs))
        for first, second in pairwise(runs):
            director = history.directors.get(first.pid, "")
            causes = history.losses_of(director, first.begin, second.begin)
            # Or the second has an earlier lease, and its director was stopped before it began.
            other = history.directors.get(second.pid, "")
            delays = history.losses_of(other, first.begin - history.linger, second.begin)
            is_delayed = any(fault.name not in ("kill_director", "terminate_director") for fault in delays)
            if not causes and not is_delayed:
                what = f"ran again, but nothing happened to {director or 'its director'}"
                yield _violation("I05", job, what, *_lines([first, second]))
            over = min(first.end, history.downs.get(first.pid, NEVER))
            only_killed = all(fault.name == "kill_director" for fault in causes)
            if causes and only_killed and second.begin < over:
                what = "ran twice at the same time, but its director was killed"
                yield _violation("I05", job, what, *_lines([first, second]))


def no_execution_starts_after_the_end(history: ClusterHistory) -> Iterator[Violation]:
    """I06: no execution starts after the end was observed, unless its director could not know of it."""
    for job in history.jobs.values():
        for run in job.executions:
            late = run.begin - job.first_end
            director = history.directors.get(run.pid, "")
            if late > BEGIN_SLACK and not history.losses_of(director, job.first_end, run.begin):
                end = min(job.terminals, key=lambda seen: seen.t)
                what = f"began {late:.3f} s after its end was observed"
                yield _violation("I06", job, what, end.line, run.line)


def acknowledged_cancels_are_final(history: ClusterHistory) -> Iterator[Violation]:
    """I07: a job whose cancel was acknowledged before its end does not end otherwise."""
    for job in history.jobs.values():
        for cancel in job.cancels:
            if cancel.status != 200 or cancel.reply is None:
                continue
            # Cog's API responds with 404 after the end, Replicate's API shows the status.
            shown = cancel.reply["body"].get("status", "")
            wrong = [seen for seen in job.terminals if seen.status != "canceled"]
            if wrong and shown not in TERMINAL and cancel.answered < job.first_end:
                what = f"a cancel was acknowledged, but the job {wrong[0].status}"
                lines = [*cancel.lines, wrong[0].line, *_lines(job.executions)]
                yield _violation("I07", job, what, *lines)


def refused_jobs_do_not_run(history: ClusterHistory) -> Iterator[Violation]:
    """I14: a refused job does not run. If PostgreSQL fails, the API cannot know whether it has the job."""
    unknown = [fault for fault in history.faults if fault.is_postgres]
    for violation in jobs.refused_jobs_do_not_run(history):
        refused = next(r for r in history.job(violation.nonce).creates if r.status >= 400)
        around = any(fault.overlaps(refused.t, refused.answered, history.linger) for fault in unknown)
        if refused.status != 503 or not around:
            yield violation


def requests_are_answered(history: ClusterHistory) -> Iterator[Violation]:
    """I15: valid requests get JSON, no 5xx but 503 while there is a fault; connections do not break."""
    for request in history.requests.values():
        cut = request.broken if not request.dropped else None
        if cut and "TimeoutError" in cut["why"] and _waited(history, request, cut["t"]):
            continue
        if cut and not _ended(history, request.event["s"], request.t, cut["t"]):
            what = f"the connection broke: {cut['why']}"
            yield Violation("I15", request.nonce, what, tuple(request.lines))
        if request.reply is None:
            continue
        status, lines = request.status, tuple(request.lines)
        if request.op == "bad" and not 400 <= status < 500 and status != 503:
            what = f"an invalid request ({request.event['bad']}) was answered with {status}"
            yield Violation("I15", request.nonce, what, lines)
        elif status >= 500 and status != 503:
            yield Violation("I15", request.nonce, f"answered with {status}", lines)
        elif status == 503 and not history.any_fault(request.t, request.answered):
            yield Violation("I15", request.nonce, "answered with 503 without a fault", lines)
        elif not request.reply["body"]["json"]:
            yield Violation("I15", request.nonce, f"{status} without JSON", lines)


def _waited(history: ClusterHistory, request: Request, until: float) -> bool:
    """Whether a request waited for the end of a job that was open, or has ended just now."""
    waits = request.op == "follow" or request.event.get("mode") in ("wait", "stream")
    return waits and history.job(request.nonce).first_end > until - history.linger


def _ended(history: ClusterHistory, server: int, since: float, until: float) -> bool:
    """Whether an API process was killed or terminated in the period."""
    ends = [f for f in history.faults if f.target == f"api{server}" and f.name != "stop_api"]
    return any(fault.overlaps(since - CUT_SLACK, until, CUT_SLACK) for fault in ends)


def accepted_jobs_are_found(history: ClusterHistory) -> Iterator[Violation]:
    """I27: no process responds with 404 about a job that another one has accepted, or about the model."""
    for request in history.requests.values():
        if request.reply is None or request.status != 404:
            continue
        lines = tuple(request.lines)
        if request.op in ("create", "list"):
            yield Violation("I27", request.nonce, "the model was not found", lines)
        accepted = history.job(request.nonce).accepted if request.nonce else None
        is_lookup = request.op in ("get", "follow") or (
            request.op == "cancel" and request.event["path"].startswith("/v1/")
        )
        if is_lookup and accepted and accepted.answered < request.t:
            yield Violation("I27", request.nonce, "was accepted, but was not found", lines)


def health_responds_in_time(history: ClusterHistory) -> Iterator[Violation]:
    """I16: health checks respond within a second while the process runs, whatever the stores do."""
    for event in history.of("health"):
        asked, t, name = event["asked"], event["t"], f"api{event['s']}"
        stopped = [f for f in history.faults if f.target == name and f.name == "stop_api"]
        held = sum(
            max(0.0, min(t, fault.closed + 0.3) - max(asked, fault.opened))
            for fault in [*stopped, *history.stalls]
            if fault.overlaps(asked, t, 0.3)
        )
        is_ending = _ended(history, event["s"], asked, t)
        if event["took"] > server.HEALTH_LIMIT + held and not is_ending:
            yield Violation("I16", "", f"health of {name} took {event['took']:.2f} s", (event["line"],))
        if ":" in event["status"] and not is_ending and not stopped:
            what = f"health of {name} did not answer: {event['status']}"
            yield Violation("I16", "", what, (event["line"],))


def streams_are_complete(history: ClusterHistory) -> Iterator[Violation]:
    """I17: a stream has one final event at its end; without faults it has the whole output before it."""
    for request in history.requests.values():
        if request.stream is None:
            continue
        until = (request.stream_end or request.broken or request.stream)["t"]
        is_disturbed = history.any_fault(request.t - history.linger, until)
        for violation in _streams(history, request):
            ends = "final event" in violation.what
            if ends or not is_disturbed:
                yield violation


def _streams(history: ClusterHistory, request: Request) -> Iterator[Violation]:
    if request.op != "follow":
        yield from server.stream_is_complete(request)
        return
    followed = history.followed.get(request.event["r"])
    if followed is None:
        return
    lines, job = (*request.lines, followed["line"]), history.job(request.nonce)
    finals = [name for name in followed["events"] if name in ("done", "error")]
    if finals not in (["done"], ["error", "done"]) or followed["events"][-1] != "done":
        what = f"the stream did not end with one final event: {followed['events']}"
        yield Violation("I17", request.nonce, what, lines)
    values = {seen.body.get("values") for seen in job.terminals if seen.status == "succeeded"}
    if finals == ["done"] and values and followed["values"] not in values:
        what = f"the stream has {followed['values']} values, the output {values}"
        yield Violation("I17", request.nonce, what, lines)


def results_are_fenced(history: ClusterHistory) -> Iterator[Violation]:
    """I28: the output is that of one execution, the one with the last lease."""
    for job in history.jobs.values():
        end = next((seen for seen in job.terminals if seen.status == "succeeded"), None)
        shown = end.body.get("out_runs", []) if end else []
        if end is None or not shown:
            continue
        runs = {run.id: run for run in job.executions}
        if len(shown) > 1 or shown[0] not in runs:
            yield _violation("I28", job, f"its output is that of {shown}", end.line, *_lines(job.executions))
            continue
        winner = runs[shown[0]]
        for other in job.executions:
            # An execution whose director was stopped or cut off may begin with a lease that is lost.
            director = history.directors.get(other.pid, "")
            begun_later = other.begin > winner.begin
            if begun_later and not history.losses_of(director, winner.begin, other.begin):
                what = f"its result is that of {winner.id}, but {other.id} had a later lease"
                yield _violation("I28", job, what, end.line, *_lines([winner, other]))


def lost_jobs_ran_twice(history: ClusterHistory) -> Iterator[Violation]:
    """I29: a job fails because of lost directors only if so many were lost."""
    for job in history.jobs.values():
        for seen in job.terminals[:1]:
            error = seen.body.get("error", "")
            needed = next((count for text, count in _LOST_ERRORS.items() if text in error), 0)
            if history.lost_runs(job) < needed:
                yield _violation("I29", job, f"failed without {needed} lost directors: {error}", seen.line)


def deadlines_are_kept(history: ClusterHistory) -> Iterator[Violation]:
    """I30: a job with a deadline ends in time, whatever happens to the processes."""
    for job in history.jobs.values():
        ends = [seen for seen in job.terminals if "completed_at" in seen.body]
        due = job.deadline_at
        if due == NEVER or (job.terminals and not ends):
            continue
        # A job without an end is late until the last lookup.
        ended = history.monotonic(ends[0].body["completed_at"]) if ends else history.settled
        late = ended - due
        begun = [run for run in job.executions if run.begin < due]
        if begun:
            limit = RUNNING_LIMIT + history.held(due - 1, ended, begun[-1].pid)
        else:
            faults = [fault for fault in history.faults if not fault.is_director]
            faults += history.stalls
            limit = WAITING_LIMIT + history.covered(due - 1, ended, faults, DEADLINE_INTERVAL)
        if late > limit:
            what = f"{'ended' if ends else 'was open'} {late:.2f} s after its deadline"
            lines = [*job.creates[0].lines, *(seen.line for seen in ends[:1])]
            yield _violation("I30", job, what, *lines)


def resources_are_bounded(history: ClusterHistory) -> Iterator[Violation]:
    """I24: at most 64 more descriptors and 512 MiB more memory in a process that was not started again."""
    samples = history.of("sample")
    for before in samples:
        same = [sample for sample in samples if sample["pid"] == before["pid"]]
        if before["moment"] != "before":
            continue
        after = next((sample for sample in same if sample["moment"] == "after"), before)
        if after["fds"] - before["fds"] > server.MORE_FDS:
            what = f"{before['node']}: {before['fds']} descriptors became {after['fds']}"
            yield Violation("I24", "", what, (before["line"], after["line"]))
        peak = max(same, key=lambda sample: int(sample["memory"]))
        if peak["memory"] - before["memory"] > server.MORE_MEMORY:
            what = f"{before['node']}: {before['memory'] >> 20} MiB became {peak['memory'] >> 20} MiB"
            yield Violation("I24", "", what, (before["line"], peak["line"]))


CLUSTER_RULES: tuple[Callable[[ClusterHistory], Iterator[Violation]], ...] = (
    jobs.every_accepted_job_ends,
    jobs.all_observed_ends_agree,
    jobs.states_never_go_back,
    jobs.terminal_webhooks_are_delivered,
    jobs_run_again_only_if_lost,
    no_execution_starts_after_the_end,
    acknowledged_cancels_are_final,
    jobs.canceled_code_stops,
    server.slot_count_is_constant,
    jobs.outputs_are_not_mixed,
    jobs.logs_are_not_mixed,
    server.generated_ids_are_unique,
    jobs.times_are_in_order,
    refused_jobs_do_not_run,
    requests_are_answered,
    health_responds_in_time,
    streams_are_complete,
    server.server_recovers_after_faults,
    server.server_exits_in_time,
    server.repeated_puts_change_nothing,
    jobs.succeeded_means_returned,
    server.accounts_are_isolated,
    resources_are_bounded,
    jobs.no_execution_starts_after_the_deadline,
    server.lists_are_complete,
    jobs.retries_keep_their_id,
    accepted_jobs_are_found,
    results_are_fenced,
    lost_jobs_ran_twice,
    deadlines_are_kept,
)

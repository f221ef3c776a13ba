"""The invariants of the server as a whole, and of the relations between jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from torture.history import NEVER, Execution, History, Request
from torture.rules_jobs import Violation

HEALTH_LIMIT = 1.0
RECOVERY_LIMIT = 10.0
MORE_FDS = 64
#: The number of jobs on a page of a list.
PAGE = 100
MORE_MEMORY = 512 << 20
#: Faults that break connections, and how long their effect may last after them.
_CUTTING = ("nofile", "ending", "kill_server")
_CUT_SLACK = 1.5


def slot_count_is_constant(history: History) -> Iterator[Violation]:
    """I09: a child never runs more jobs than it has slots, and every slot is usable at the end."""
    slots = history.run["slots"]
    by_worker = defaultdict(list)
    for job in history.jobs.values():
        for run in job.executions:
            end = min(run.end, job.first_end, history.downs.get(run.pid, NEVER))
            by_worker[run.pid].append((run, end, job.nonce))
    for pid, runs in by_worker.items():
        runs.sort(key=lambda entry: entry[0].begin)
        for index, (run, _, nonce) in enumerate(runs):
            alive = [other for other, end, _ in runs[:index] if end > run.begin]
            if len(alive) >= slots:
                lines = [line for other in [*alive, run] for line in other.lines]
                what = f"{len(alive) + 1} run at once in child {pid}, which has {slots} slots"
                yield Violation("I09", nonce, what, tuple(lines))
    yield from _probe(history)


def _probe(history: History) -> Iterator[Violation]:
    opened = next((event for event in history.of("probe") if event["phase"] == "open"), None)
    closed = next((event for event in history.of("probe") if event["phase"] == "close"), None)
    if opened is None or closed is None:
        return
    runs: list[Execution] = [run for nonce in opened["nonces"] for run in history.job(nonce).executions]
    alive = [run for run in runs if run.begin < closed["t"] <= run.end]
    if len(alive) != opened["slots"]:
        lines = [opened["line"], closed["line"], *(run.line for run in alive)]
        what = f"at the end, {len(alive)} jobs ran at once instead of {opened['slots']}"
        yield Violation("I09", "", what, tuple(lines))


def generated_ids_are_unique(history: History) -> Iterator[Violation]:
    """I12: a generated id is never returned twice."""
    first: dict[str, Request] = {}
    for request in history.requests.values():
        if request.op != "create" or request.id or not request.accepted:
            continue
        id = (request.reply or {}).get("body", {}).get("id")
        id = id or next((event["id"] for event in request.sse if event.get("id")), None)
        if id is None:
            continue
        other = first.setdefault(id, request)
        if other is not request:
            what = f"the id {id} was also given to {other.nonce}"
            yield Violation("I12", request.nonce, what, (*other.lines, *request.lines))


def requests_are_answered(history: History) -> Iterator[Violation]:
    """I15: valid requests get JSON and no 5xx except 503, invalid ones 4xx; connections do not break."""
    for request in history.requests.values():
        cut = request.broken if not request.dropped else None
        if cut and not history.overlaps_any(request.t, cut["t"], *_CUTTING, slack=_CUT_SLACK):
            what = f"the connection broke: {cut['why']}"
            yield Violation("I15", request.nonce, what, tuple(request.lines))
        if request.reply is None:
            continue
        status, body = request.status, request.reply["body"]
        if request.op == "bad" and not 400 <= status < 500 and status != 503:
            what = f"an invalid request ({request.event['bad']}) was answered with {status}"
            yield Violation("I15", request.nonce, what, tuple(request.lines))
        elif status >= 500 and status != 503:
            yield Violation("I15", request.nonce, f"answered with {status}", tuple(request.lines))
        elif not body["json"]:
            yield Violation("I15", request.nonce, f"{status} without JSON", tuple(request.lines))


def health_responds_in_time(history: History) -> Iterator[Violation]:
    """I16: health checks respond within a second while the process runs."""
    for event in history.of("health"):
        asked, t = event["asked"], event["t"]
        held = sum(history.overlaps(asked, t, "stop_server", "stall", slack=0.1))
        if event["took"] > HEALTH_LIMIT + held and not (
            event["fresh"] and history.overlaps_any(asked, t, "nofile")
        ):
            yield Violation("I16", "", f"health took {event['took']:.2f} s", (event["line"],))
        if ":" in event["status"] and not history.overlaps_any(asked, t, *_CUTTING, slack=_CUT_SLACK):
            yield Violation("I16", "", f"health did not answer: {event['status']}", (event["line"],))


def streams_are_complete(history: History) -> Iterator[Violation]:
    """I17: indices are 0..n-1, one final event is last, and the chunks equal the final output."""
    for request in history.requests.values():
        if request.stream is not None:
            yield from stream_is_complete(request)


def stream_is_complete(request: Request) -> Iterator[Violation]:
    """I17 for one stream."""
    outputs = [event for event in request.sse if event["event"] == "output"]
    finals = [event for event in request.sse if event["event"] in ("completed", "error")]
    lines = tuple(request.lines)
    indices = [event["index"] for event in outputs]
    if indices != list(range(len(indices))):
        yield Violation("I17", request.nonce, f"the indices are {indices[:20]}", lines)
    if len(finals) > 1 or (finals and finals[-1] is not request.sse[-1]):
        yield Violation("I17", request.nonce, "an event followed the final event", lines)
    if request.stream_end and not finals:
        yield Violation("I17", request.nonce, "the stream ended without a final event", lines)
    if finals and finals[0]["event"] == "completed" and not _fits(outputs, finals[0]["body"]):
        what = "the chunks are not those of the output"
        yield Violation("I17", request.nonce, what, (*lines, finals[0]["line"]))


def _fits(outputs: list[dict[str, object]], body: dict[str, object]) -> bool:
    chunks = [event["out"] for event in outputs]
    if "out" not in body:
        return not chunks
    return chunks in (body["chunks"], [body["out"]])


def queue_order_is_kept(history: History) -> Iterator[Violation]:
    """I18: with one slot, a job accepted before the next request of its account starts first."""
    if history.run["workers"] * history.run["slots"] != 1:
        return
    queues = defaultdict(list)
    for job in history.jobs.values():
        if job.accepted and job.executions:
            asked = job.accepted.event
            # Each account and each API has its own queue.
            queues[asked.get("account"), asked.get("api")].append((job.accepted, job.executions[0]))
    for begun in queues.values():
        promised = [
            (request, run) for request, run in begun if request.reply and request.status in (201, 202)
        ]
        for earlier, first in promised:
            for later, second in begun:
                if earlier.answered < later.t and second.begin < first.begin:
                    lines = (*earlier.lines, *later.lines, first.line, second.line)
                    yield Violation("I18", earlier.nonce, f"was overtaken by {later.nonce}", lines)


def lists_are_complete(history: History) -> Iterator[Violation]:
    """I26: a list has every earlier accepted job of its account, newest first, and no others."""
    created = [job.accepted for job in history.jobs.values() if job.accepted]
    made = [request for request in created if request.event.get("api") == "replicate"]
    for asked in history.requests.values():
        if asked.op == "list" and asked.reply and asked.status == 200:
            yield from _list(asked, made)


def _list(asked: Request, made: list[Request]) -> Iterator[Violation]:
    listed, lines = asked.reply["body"]["listed"] if asked.reply else [], tuple(asked.lines)
    requests = {request.nonce: request for request in made}
    shown = [requests[nonce] for nonce in listed if nonce in requests]
    for request in made:
        is_own = request.event["account"] == asked.event["account"]
        if not is_own and request.nonce in listed:
            yield Violation("I26", request.nonce, "is in the list of another account", lines)
        # Older jobs are on the next page.
        newer = len(listed) < PAGE or any(other.answered < request.t for other in shown)
        if is_own and request.answered < asked.t and newer and request.nonce not in listed:
            yield Violation("I26", request.nonce, "was accepted, but is not in the list", lines)
    for first, second in pairwise(shown):
        if first.answered < second.t:
            yield Violation("I26", second.nonce, f"is newer than {first.nonce}, but listed after it", lines)


def server_recovers_after_faults(history: History) -> Iterator[Violation]:
    """I19: an execution starts within 10 s after the end of a fault."""
    begins = sorted(event["t"] for event in history.of("begin"))
    load = next((event["t"] for event in history.of("load") if event["phase"] == "close"), history.end)
    watched = min((event["t"] for event in history.of("term")), default=history.end)
    healed = [(name, closed) for name, _, closed in history.windows if name not in ("stall", "ending")]
    crashes = [
        (run.behave, run.end) for job in history.jobs.values() for run in job.executions if run.how == "crash"
    ]
    for name, closed in [*healed, *crashes]:
        if closed > load:
            continue
        next_begin = next((t for t in begins if t >= closed), watched)
        others = {window for window, *_ in history.windows if window != "ending"}
        more = sum(history.overlaps(closed, next_begin, *others))
        if next_begin - closed > RECOVERY_LIMIT + more:
            lines = tuple(e["line"] for e in history.of("fault") if abs(e["t"] - closed) < 1e-6)
            what = f"no execution started within {RECOVERY_LIMIT:.0f} s after {name}"
            yield Violation("I19", "", what, lines)


def server_exits_in_time(history: History) -> Iterator[Violation]:
    """I20: the server exits with 0 in time after SIGTERM and leaves no process."""
    exits = {event["pid"]: event for event in history.of("exited")}
    for event in history.of("term"):
        exited = exits.get(event["pid"])
        if exited is None or exited["t"] - event["t"] > history.run["exit_limit"]:
            yield Violation("I20", "", "did not exit in time after SIGTERM", (event["line"],))
        elif exited["code"] != 0:
            what = f"exited with {exited['code']} after SIGTERM"
            yield Violation("I20", "", what, (event["line"], exited["line"]))
    for event in history.of("left_behind"):
        if event["pids"]:
            what = f"left {len(event['pids'])} processes behind: {event['names']}"
            yield Violation("I20", "", what, (event["line"],))


def repeated_puts_change_nothing(history: History) -> Iterator[Violation]:
    """I21: a repeated PUT starts nothing and keeps the first input."""
    for request in history.requests.values():
        owners = history.owners.get(request.id or "", [])
        if request.op != "replay" or len(owners) != 1:
            continue
        job, other = history.job(owners[0]), request.nonce != owners[0]
        created = job.accepted
        if created is None or created.answered > request.t:
            continue
        runs = history.job(request.nonce).executions if other else job.executions[history.runs_allowed(job) :]
        for run in runs:
            lines = (*created.lines, *request.lines, *run.lines)
            yield Violation("I21", owners[0], "ran again because of a repeated PUT", lines)
        shown = (request.reply or {}).get("body", {}).get("input")
        if shown and shown != owners[0]:
            yield Violation("I21", owners[0], f"now has the input of {shown}", tuple(request.lines))
        if other and request.reply and request.status == 200:
            yield Violation("I21", owners[0], "a PUT with another input got a result", tuple(request.lines))


def accounts_are_isolated(history: History) -> Iterator[Violation]:
    """F2: jobs of another account do not exist."""
    for request in history.requests.values():
        if request.op == "foreign" and request.reply and request.status != 404:
            what = f"another account's job was answered with {request.status}"
            yield Violation("F2", "", what, tuple(request.lines))


def accounts_are_served_fairly(history: History) -> Iterator[Violation]:
    """I23: between two starts of an account that waits, others start at most 2(k-1)s + s times."""
    accounts = history.run.get("accounts", 1)
    if not history.run.get("fair") or accounts < 2:
        return
    slots = history.run["workers"] * history.run["slots"]
    starts = []
    for job in history.jobs.values():
        if job.creates:
            # A job that starts again after a kill counts as another start.
            starts += [(run, job.creates[0].event.get("account"), job) for run in job.executions]
    starts.sort(key=lambda start: start[0].begin)
    for index, (run, account, _) in enumerate(starts):
        others = Counter[str]()
        for later, (again, who, job) in enumerate(starts[index + 1 :], index + 1):
            if who != account:
                # The server may have accepted a job whose client did not get the response.
                others["others"] += job.accepted is not None
                continue
            waited = job.accepted is not None and job.accepted.answered <= run.begin
            # A restarted server begins with the job that was accepted first.
            rounds = 2 * (1 + history.killed(run.begin, again.begin))
            if waited and others["others"] > rounds * (accounts - 1) * slots + slots:
                lines = tuple(start[0].line for start in starts[index : later + 1])
                yield Violation("I23", job.nonce, f"{others['others']} others started first", lines)
            break


def resources_are_bounded(history: History) -> Iterator[Violation]:
    """I24: at most 64 more descriptors and 512 MiB more memory during the run."""
    samples = history.of("sample")
    before = next((sample for sample in samples if sample["moment"] == "before"), None)
    after = next((sample for sample in samples if sample["moment"] == "after"), None)
    if before is None:
        return
    if after is not None and after["fds"] - before["fds"] > MORE_FDS:
        what = f"{before['fds']} descriptors became {after['fds']}"
        yield Violation("I24", "", what, (before["line"], after["line"]))
    peak = max((s for s in samples if s["pid"] == before["pid"]), key=lambda sample: int(sample["memory"]))
    if peak["memory"] - before["memory"] > MORE_MEMORY:
        what = f"{before['memory'] >> 20} MiB became {peak['memory'] >> 20} MiB"
        yield Violation("I24", "", what, (before["line"], peak["line"]))

"""Checks the log of a run against every invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from torture import rules_jobs as jobs
from torture import rules_server as server
from torture.cluster.history import ClusterHistory
from torture.cluster.rules import CLUSTER_RULES
from torture.event_log import read_log
from torture.history import History
from torture.rules_jobs import Violation

RULES: tuple[Callable[[History], Iterator[Violation]], ...] = (
    jobs.every_accepted_job_ends,
    jobs.all_observed_ends_agree,
    jobs.states_never_go_back,
    jobs.terminal_webhooks_are_delivered,
    jobs.jobs_run_once,
    jobs.no_execution_starts_after_the_end,
    jobs.acknowledged_cancels_take_effect,
    jobs.canceled_code_stops,
    jobs.no_execution_starts_after_the_deadline,
    server.slot_count_is_constant,
    jobs.outputs_are_not_mixed,
    jobs.logs_are_not_mixed,
    server.generated_ids_are_unique,
    jobs.times_are_in_order,
    jobs.refused_jobs_do_not_run,
    server.requests_are_answered,
    server.health_responds_in_time,
    server.streams_are_complete,
    server.queue_order_is_kept,
    server.lists_are_complete,
    server.server_recovers_after_faults,
    server.server_exits_in_time,
    server.repeated_puts_change_nothing,
    jobs.succeeded_means_returned,
    server.accounts_are_served_fairly,
    server.accounts_are_isolated,
    jobs.retries_keep_their_id,
    server.resources_are_bounded,
)


def read_history(log: Path) -> History:
    """The history of a saved log."""
    events = read_log(log)
    run = next(event for event in events if event["k"] == "run")
    return ClusterHistory(events) if run.get("cluster") else History(events)


def check(history: History) -> list[Violation]:
    """All violations, by invariant."""
    if isinstance(history, ClusterHistory):
        return [violation for cluster_rule in CLUSTER_RULES for violation in cluster_rule(history)]
    return [violation for rule in RULES for violation in rule(history)]


def explain(violation: Violation, log: Path, most: int = 8) -> str:
    """A violation with the lines of the log that show it."""
    numbers = violation.lines[:most]
    shown = []
    with log.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if number in numbers:
                shown.append(f"    {number}: {line.rstrip()[:400]}")
    subject = f" {violation.nonce}" if violation.nonce else ""
    return "\n".join([f"{violation.invariant}{subject}: {violation.what}", *shown])

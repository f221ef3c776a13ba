"""Decides from a log alone whether everything held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from torture import rules_jobs as jobs
from torture import rules_server as server
from torture.history import History
from torture.rules_jobs import Violation

RULES: tuple[Callable[[History], Iterator[Violation]], ...] = (
    jobs.every_accepted_job_ends,
    jobs.all_ends_agree,
    jobs.states_only_rise,
    jobs.ends_are_told,
    jobs.jobs_run_once,
    jobs.nothing_begins_after_the_end,
    jobs.cancels_count,
    jobs.canceled_code_stops,
    jobs.nothing_begins_too_late,
    server.slots_are_kept,
    jobs.output_is_its_own,
    jobs.logs_are_its_own,
    server.made_ids_are_new,
    jobs.times_are_in_order,
    jobs.refused_is_refused,
    server.requests_are_answered,
    server.health_answers,
    server.streams_are_whole,
    server.first_come_first_served,
    server.lists_are_whole,
    server.it_serves_again,
    server.it_ends_in_time,
    server.replays_change_nothing,
    jobs.success_means_returned,
    server.tenants_are_served_fairly,
    server.accounts_do_not_meet,
    jobs.retries_keep_their_id,
    server.it_does_not_grow,
)


def check(history: History) -> list[Violation]:
    """All violations, by invariant."""
    return [violation for rule in RULES for violation in rule(history)]


def explain(violation: Violation, log: Path, most: int = 8) -> str:
    """A violation with the lines of the log that show it."""
    wanted = violation.lines[:most]
    shown = []
    with log.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if number in wanted:
                shown.append(f"    {number}: {line.rstrip()[:400]}")
    whose = f" {violation.nonce}" if violation.nonce else ""
    return "\n".join([f"{violation.invariant}{whose}: {violation.what}", *shown])

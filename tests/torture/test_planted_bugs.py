"""The torture program finds every planted bug and names the violated invariant."""

from __future__ import annotations

import re

import pytest
from environment import ROOT
from test_planted_cluster_bugs import PLANTED as PLANTED_IN_CLUSTERS
from test_planted_cluster_bugs import REPAIRED
from torture_runner import SEEDS, run_torture

pytestmark = pytest.mark.timeout(240)

#: Bug, profile in which it shows, seconds of load, what it violates.
PLANTED = [
    ("leaked-permit", "calm", 1, "I09"),
    ("lost-webhook", "calm", 1, "I04"),
    ("early-end", "patience", 2, "I03"),
    ("stale-state", "calm", 1, "I03"),
    ("deaf-cancel", "fickle", 2, "I07"),
    ("repeated-put", "fickle", 2, "I21"),
    ("foreign-logs", "crowd", 1, "I11"),
    ("foreign-output", "crowd", 1, "I10"),
    ("false-success", "calm", 1, "I22"),
    ("forgotten-job", "calm", 1, "I01"),
    ("repeated-id", "crowd", 2, "I12"),
    ("slow-health", "calm", 4, "I16"),
    ("extra-slot", "crowd", 1, "I09"),
    ("lost-chunk", "crowd", 1, "I17"),
    ("overtaking", "queue", 2, "I18"),
    ("unfair", "accounts", 3, "I23"),
    ("two-ends", "fickle", 2, "I02"),
    ("leaked-descriptor", "crowd", 2, "I24"),
    ("not-replaced", "crash", 2, "I09"),
    ("unrecorded-job", "killed", 2, "I01"),
    ("lost-message", "killed", 4, "I04"),
    ("new-message-id", "killed", 4, "C6"),
    ("mixed-queue", "killed", 4, "I18"),
    ("unrecorded-job", "killed-replicate", 3, "I01"),
    ("mixed-queue", "killed-replicate", 4, "I18"),
    ("forgotten-cancel", "killed-replicate", 4, "I06"),
    ("foreign-input", "killed-replicate", 2, "I10"),
]


@pytest.mark.parametrize(("bug", "profile", "seconds", "invariant"), PLANTED)
def test_a_planted_bug_is_found(bug, profile, seconds, invariant, tmp_path):
    run = ("--seconds", str(seconds), "--settle", "1", "--profile", profile)
    done = run_torture(*run, *SEEDS, "--plant", bug, "--until", invariant, logs=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"\b{invariant}: [1-9]", done.stdout), done.stdout


@pytest.mark.parametrize("profile", sorted({profile for _, profile, _, _ in PLANTED}))
def test_nothing_is_found_where_nothing_is_planted(profile, tmp_path):
    done = run_torture("--seconds", "2", "--profile", profile, logs=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_bug_that_can_be_planted_is_tried():
    source = (ROOT / "crates" / "core" / "src" / "planted.rs").read_text()
    tried = {bug for bug, *_ in [*PLANTED, *PLANTED_IN_CLUSTERS]} | REPAIRED
    assert set(re.findall(r'\("([a-z-]+)", Self::', source)) == tried

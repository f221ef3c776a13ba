"""Short runs of the torture program: no invariant is violated."""

from __future__ import annotations

import re

import pytest
from torture_runner import run_torture


@pytest.mark.parametrize("seed", [1, 2])
def test_a_short_storm_violates_no_invariant(seed, tmp_path):
    done = run_torture("--seconds", "6", "--seed", str(seed), logs=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* jobs accepted.*[1-9]\d* faults", done.stdout), done.stdout


@pytest.mark.parametrize("profile", ["killed", "killed-replicate"])
def test_repeated_kills_lose_no_job(profile, tmp_path):
    done = run_torture("--seconds", "8", "--profile", profile, "--seed", "5", "--keep", logs=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = tmp_path.glob("*.jsonl")
    assert log.read_text().count('"state":"killed"') > 2, done.stdout


def test_a_short_run_against_a_cluster_violates_no_invariant(tmp_path):
    done = run_torture("--seconds", "12", "--profile", "cluster", "--seed", "3", logs=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* jobs accepted.*[1-9]\d* faults", done.stdout), done.stdout


def test_a_kept_log_can_be_checked_again(tmp_path):
    done = run_torture("--seconds", "1", "--profile", "queue", "--keep", logs=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = tmp_path.glob("*.jsonl")
    again = run_torture("check", str(log))
    assert (again.returncode, again.stdout) == (0, "0 violations\n")

"""The torture program finds every bug that is planted in a cluster, and names the violated invariant."""

from __future__ import annotations

import re

import pytest
from torture_runner import SEEDS, run_torture

pytestmark = pytest.mark.timeout(240)

#: Bug, profile in which it shows, seconds of load, seconds until a correct cluster has settled, what it
#: violates.
PLANTED = [
    ("lease-without-fence", "cluster-isolated", 5, 2, "I28"),
    ("lost-entries", "cluster-emptied", 3, 6, "I01"),
    ("lost-deadline", "cluster-stranded", 9, 6, "I01"),
    ("endless-claim", "cluster-killed", 3, 6, "I04"),
    ("cancel-in-memory", "cluster-canceled", 2, 3, "I07"),
]

#: Bugs whose damage the cluster repairs: a director gives back a lease that it does not know, so that the job
#: of a message that was acknowledged too early runs again.
REPAIRED = {"ack-before-commit"}


@pytest.mark.parametrize(("bug", "profile", "seconds", "settle", "invariant"), PLANTED)
def test_a_bug_planted_in_a_cluster_is_found(bug, profile, seconds, settle, invariant, tmp_path):
    run = ("--seconds", str(seconds), "--settle", str(settle), "--profile", profile)
    done = run_torture(*run, *SEEDS, "--plant", bug, "--until", invariant, logs=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"\b{invariant}: [1-9]", done.stdout), done.stdout

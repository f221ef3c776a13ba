"""docs/reference/queue.md names a test for every requirement of the queues and directors."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/queue.md").read_text("utf-8")
ROWS = re.findall(r"^\| (REP-[QMWTS]-\d\d) \|[^|]*\| `([^`]+)`: `(\w+)` \|$", PAGE, re.M)
COUNTS = {"Q": 20, "M": 15, "W": 13, "T": 16, "S": 17}


def test_every_requirement_is_listed_once():
    expected = [f"REP-{part}-{number:02}" for part, count in COUNTS.items() for number in range(1, count + 1)]
    assert [name for name, _, _ in ROWS] == expected


def test_every_named_test_exists():
    missing = [
        f"{name}: {file}: {test}"
        for name, file, test in ROWS
        if not re.search(rf"\b(fn|def) {test}\(", (ROOT / file).read_text("utf-8"))
    ]
    assert missing == []

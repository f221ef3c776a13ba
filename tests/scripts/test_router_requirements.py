"""docs/reference/router.md names a test for every requirement of the router, or says that it is not built."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/router.md").read_text("utf-8")
ROWS = re.findall(r"^\| (WAI-[QPRFO]-\d\d) \|[^|]*\| (.+) \|$", PAGE, re.M)
COUNTS = {"Q": 14, "P": 14, "R": 14, "F": 21, "O": 13}
TEST = re.compile(r"`([^`]+)`: `(\w+)`")


def test_every_requirement_of_the_router_is_listed_once():
    expected = [f"WAI-{part}-{number:02}" for part, count in COUNTS.items() for number in range(1, count + 1)]
    assert [name for name, _ in ROWS] == expected


def test_every_test_of_a_requirement_of_the_router_exists():
    problems = []
    for name, cell in ROWS:
        if cell.startswith("not built"):
            continue
        named = TEST.fullmatch(cell)
        if not named:
            problems.append(f"{name}: neither a test nor `not built`: {cell}")
        elif not re.search(rf"\b(fn|def) {named[2]}\(", (ROOT / named[1]).read_text("utf-8")):
            problems.append(f"{name}: {named[1]} has no {named[2]}")
    assert problems == []

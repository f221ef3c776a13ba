#!/usr/bin/env python3
"""Checks that the documentation names only what exists.

In README.md, CONTRIBUTING.md, CHANGELOG.md, the READMEs of folders and everything in docs/: every
relative link leads to a file (and to a heading of it), and every path of the repository in backticks
is there, with the test that follows `::`. In docs/reliability.md, every row of a table names a test, or
says in its last cell why there is none. Prints `file:line: what is wrong` and exits with 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "*.md",
    "docs/**/*.md",
    "examples/README.md",
    "bench/README.md",
    "tests/README.md",
    "tests/conformance/*.md",
    "changelog.d/*.md",
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
TABLES_OF_TESTS = ROOT.glob("docs/reliability*.md")
NO_TEST = re.compile(r"^(?:not tested|later): \w")
FOLDERS = "crates|fuzz|python|tests|docs|examples|scripts|bench|changelog\\.d|\\.ci"
PLACE = re.compile(rf"^(?:{FOLDERS})(?:/[\w./*-]*)?$")


def main() -> int:
    """Check every page; the exit code says whether all is well."""
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    problems = [problem for page in pages for problem in check(page)]
    problems += [problem for page in sorted(TABLES_OF_TESTS) for problem in untested(page)]
    for problem in problems:
        print(problem)
    print(f"{len(pages)} pages, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


def check(page: Path) -> Iterator[str]:
    """Yield what is wrong with one page."""
    for number, line in prose(page):
        where = f"{page.relative_to(ROOT)}:{number}"
        for target in LINK.findall(CODE.sub("", line)):
            if problem := broken_link(page, target):
                yield f"{where}: {problem}"
        for text in CODE.findall(line):
            if problem := missing_path(text):
                yield f"{where}: {problem}"


def untested(page: Path) -> Iterator[str]:
    """Yield the rows of a page's tables that promise something without a test."""
    for number, line in prose(page):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| ") or not re.fullmatch(r"[A-Z]\d+", cells[0]):
            continue
        tests = [text for text in CODE.findall(cells[-1]) if "::" in text and text.startswith("tests/")]
        if not tests and not NO_TEST.match(cells[-1]):
            yield f"{page.relative_to(ROOT)}:{number}: row {cells[0]} names no test `tests/…::name`"


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page without its fenced and indented code."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def broken_link(page: Path, target: str) -> str | None:
    """Say why a link leads nowhere; addresses of other sites are not looked at."""
    if re.match(r"[a-z][a-z+.-]*:", target):
        return None
    name, _, heading = target.partition("#")
    file = (page.parent / name) if name else page
    if not file.exists():
        return f"`{target}` does not exist"
    if heading and file.suffix == ".md" and heading not in headings(file):
        return f"`{target}`: there is no such heading"
    return None


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, made as code hosts make them."""
    titles = [line.lstrip("#") for _, line in prose(page) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def missing_path(text: str) -> str | None:
    """Say what is missing, if `text` looks like a path of the repository."""
    path, _, name = text.partition("::")
    if not PLACE.match(path) or path in ("python", "bench", "tests", "docs", "examples", "scripts"):
        return None
    found = list(ROOT.glob(path)) if "*" in path else [ROOT / path]
    if not found or not all(file.exists() for file in found):
        return f"`{path}` does not exist"
    if name and not re.search(rf"\b(?:def|class) {re.escape(name)}\b", found[0].read_text("utf-8")):
        return f"`{path}` has no `{name}`"
    return None


if __name__ == "__main__":
    sys.exit(main())

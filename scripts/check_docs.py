#!/usr/bin/env python3
"""Checks the language of the repository, and that the documentation names only what exists.

In README.md, CONTRIBUTING.md, CHANGELOG.md, the READMEs of folders and every page in docs/:

- every relative link leads to a file, and to a heading of it;
- every path of the repository in backticks exists, with the test that follows `::`;
- in docs/reliability.md, every row of a table names a test, or says in its last cell why there is none;
- no line uses a banned phrase (scripts/banned_phrases.py).

With `--sources`, the check for banned phrases also covers the Rust and Python sources: comments, doc
comments, names and string literals, help texts among them. `--count` prints the number of banned
phrases per folder instead of every problem. Prints `file:line: problem` and exits with 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from banned_phrases import banned_phrases

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
PAGES_WITH_TESTS = "docs/reliability*.md"

SOURCE_SUFFIXES = (".rs", ".py", ".pyi")
# Models as users write them, data of other projects, and the list of banned phrases itself.
NOT_SOURCES = (
    "tests/models/",
    "python/tests/data/",
    "scripts/banned_phrases.py",
    "tests/scripts/",
)

LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
REASON_FOR_NO_TEST = re.compile(r"^(?:not tested|later): \w")
FOLDERS = "crates|fuzz|torture|python|tests|docs|examples|scripts|bench|deploy|changelog\\.d|\\.ci"
REPOSITORY_PATH = re.compile(rf"^(?:{FOLDERS})(?:/[\w./*-]*)?$")
# Words that are also the names of folders; alone in backticks they mean something else.
AMBIGUOUS_FOLDERS = frozenset(
    {"python", "bench", "tests", "torture", "docs", "examples", "scripts", "deploy"}
)


def main() -> int:
    """Check every page, and the sources if asked to; return the exit code."""
    options = arguments()
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    sources = source_files() if options.sources else []
    read = [*pages, *sources]
    if options.count:
        print_counts(read)
        return 0

    problems = [problem for page in pages for problem in page_problems(page)]
    problems += [problem for file in read for problem in language_problems(file)]
    for problem in problems:
        print(problem)
    print(f"{len(pages)} pages, {len(sources)} sources, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sources", action="store_true", help="check the language of the sources too")
    parser.add_argument("--count", action="store_true", help="print the banned phrases per folder only")
    return parser.parse_args()


def source_files() -> list[Path]:
    """Return the Rust and Python files under version control whose language is checked."""
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()  # noqa: S607
    checked = [name for name in names if name.endswith(SOURCE_SUFFIXES) and not name.startswith(NOT_SOURCES)]
    return [ROOT / name for name in checked if (ROOT / name).exists()]


def page_problems(page: Path) -> Iterator[str]:
    """Yield the links and paths of a page that do not exist, and promises without a test."""
    yield from reference_problems(page)
    if page.match(PAGES_WITH_TESTS):
        yield from rows_without_tests(page)


def reference_problems(page: Path) -> Iterator[str]:
    """Yield the broken links and missing paths of a page."""
    for number, line in prose(page):
        location = f"{page.relative_to(ROOT)}:{number}"
        for target in LINK.findall(CODE.sub("", line)):
            if problem := broken_link(page, target):
                yield f"{location}: {problem}"
        for text in CODE.findall(line):
            if problem := missing_path(text):
                yield f"{location}: {problem}"


def rows_without_tests(page: Path) -> Iterator[str]:
    """Yield the rows of a page's tables that make a promise without naming a test."""
    for number, line in prose(page):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| ") or not re.fullmatch(r"[A-Z]\d+", cells[0]):
            continue
        tests = [text for text in CODE.findall(cells[-1]) if "::" in text and text.startswith("tests/")]
        if not tests and not REASON_FOR_NO_TEST.match(cells[-1]):
            yield f"{page.relative_to(ROOT)}:{number}: row {cells[0]} names no test `tests/…::name`"


def language_problems(file: Path) -> Iterator[str]:
    """Yield the banned phrases of a page or a source file."""
    path = file.relative_to(ROOT)
    for hit in banned_phrases(file.read_text(encoding="utf-8"), path):
        yield f'{path}:{hit.line}: banned phrase "{hit.text}": write {hit.instead} instead'


def print_counts(files: list[Path]) -> None:
    """Print how many banned phrases each crate and folder has."""
    counts = Counter(folder(file) for file in files for _ in language_problems(file))
    for name, count in sorted(counts.items()):
        print(f"{count:6} {name}")
    print(f"{counts.total():6} in total")


def folder(file: Path) -> str:
    """Return the crate or folder that a file belongs to."""
    parts = file.relative_to(ROOT).parts
    return "/".join(parts[: 2 if parts[0] in ("crates", "docs", "python", "tests") else 1])


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page without its fenced and indented code."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def broken_link(page: Path, target: str) -> str | None:
    """Say why a link is broken; links to other sites are not checked."""
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
    """Return the anchors of a page, in the form that code hosts use."""
    titles = [line.lstrip("#") for _, line in prose(page) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def missing_path(text: str) -> str | None:
    """Say what is missing, if `text` is a path of the repository."""
    path, _, name = text.partition("::")
    if not REPOSITORY_PATH.match(path) or path in AMBIGUOUS_FOLDERS:
        return None
    found = list(ROOT.glob(path)) if "*" in path else [ROOT / path]
    if not found or not all(file.exists() for file in found):
        return f"`{path}` does not exist"
    for part in filter(None, name.split("::")):  # a class and its method
        if not re.search(rf"\b(?:def|class) {re.escape(part)}\b", found[0].read_text("utf-8")):
            return f"`{path}` has no `{part}`"
    return None


if __name__ == "__main__":
    sys.exit(main())

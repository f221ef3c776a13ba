#!/usr/bin/env python3
"""Checks that every public type of the workspace has a name of its own.

A type is a struct, enum, union, trait or type alias of `crates/*/src` or `python/src`, outside tests.
It is public if it has a visibility (`pub`, `pub(crate)`, `pub(super)`, …). Exceptions: the types in a
file named `wire.rs`, which mirror the words of another system, and the names of roles that many
modules have. With `--all`, private types count too. Prints every place of a name that is used more
than once and exits with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("crates/*/src/**/*.rs", "python/src/**/*.rs")

ROLES = frozenset({"Config", "Error", "Inner", "ApiError", "AppState", "Msg"})
FOREIGN_NAMES = "wire.rs"

DECLARATION = re.compile(
    r"^(?P<indent>\s*)(?P<visibility>pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?"
    r"(?P<kind>struct|enum|union|trait|type)\s+(?P<name>[A-Z]\w*)"
)
TEST_ATTRIBUTE = re.compile(r"^\s*#\[cfg\((?:all\()?test\b")
MODULE_START = re.compile(r"^(?P<indent>\s*)(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{\s*$")


class Declaration(NamedTuple):
    """A type that a file declares."""

    name: str
    kind: str
    public: bool
    path: Path
    line: int


def main() -> int:
    """Print the names that are used more than once; return the exit code."""
    options = arguments()
    files = sorted({file for pattern in SOURCES for file in ROOT.glob(pattern)})
    types = [found for file in files for found in declared_types(file) if options.all or found.public]
    repeated = repeated_names(types)
    for name, places in repeated.items():
        print(f"`{name}` is the name of {len(places)} types:")
        for place in places:
            print(f"  {place.path.relative_to(ROOT)}:{place.line}: {place.kind}")
    print(f"{len(types)} types, {len(repeated)} names used more than once", file=sys.stderr)
    return 1 if repeated else 0


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--all", action="store_true", help="include private types")
    return parser.parse_args()


def repeated_names(types: Iterable[Declaration]) -> dict[str, list[Declaration]]:
    """Return the places of every name that more than one type has, the most frequent name first."""
    places: defaultdict[str, list[Declaration]] = defaultdict(list)
    for declared in types:
        if declared.name not in ROLES and declared.path.name != FOREIGN_NAMES:
            places[declared.name].append(declared)
    repeated = {name: found for name, found in places.items() if len(found) > 1}
    return dict(sorted(repeated.items(), key=lambda item: (-len(item[1]), item[0])))


def declared_types(file: Path) -> Iterator[Declaration]:
    """Yield the types that a file declares outside tests."""
    if file.name == "tests.rs" or "tests" in file.relative_to(ROOT).parts:
        return
    for number, line in outside_tests(file.read_text(encoding="utf-8").splitlines()):
        match = DECLARATION.match(line)
        if match is None or is_associated_type(match):
            continue
        yield Declaration(match["name"], match["kind"], match["visibility"] is not None, file, number)


def is_associated_type(match: re.Match[str]) -> bool:
    """Tell whether a declaration is the associated type of a trait or an impl."""
    return match["kind"] == "type" and match["indent"] != "" and match["visibility"] is None


def outside_tests(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that are not in a module for tests.

    rustfmt puts the closing brace of a module at the indentation of its first line.
    """
    end_of_tests: str | None = None
    after_attribute = False
    for number, line in enumerate(lines, 1):
        if end_of_tests is not None:
            if line.rstrip() == end_of_tests:
                end_of_tests = None
            continue
        start = MODULE_START.match(line)
        if after_attribute and start:
            end_of_tests = start["indent"] + "}"
        elif not after_attribute or not DECLARATION.match(line):
            yield number, line
        if line.strip() and not line.lstrip().startswith(("#[", "//")):
            after_attribute = False
        after_attribute = after_attribute or TEST_ATTRIBUTE.match(line) is not None


if __name__ == "__main__":
    sys.exit(main())

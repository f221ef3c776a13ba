"""docs/glossary.md has one row per term, and its types are in the modules that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def rows():
    """Term, types and modules of every row."""
    for line in (ROOT / "docs/glossary.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "term":
            yield cells[0], re.findall(r"`(\w+)`", cells[1]), re.findall(r"`([^`]+)`", cells[3])


def rust(module):
    path = ROOT / module
    files = [path] if path.is_file() else path.rglob("*.rs")
    return "\n".join(file.read_text("utf-8") for file in files)


def test_every_term_has_one_row():
    terms = [term for term, _, _ in rows()]
    assert len(terms) > 50
    assert sorted(set(terms)) == sorted(terms)


@pytest.mark.parametrize(("term", "types", "modules"), [row for row in rows() if row[1]])
def test_the_types_of_a_term_are_in_its_modules(term, types, modules):
    code = "\n".join(rust(module) for module in modules)
    missing = [name for name in types if not re.search(rf"\b(?:struct|enum|trait|type) {name}\b", code)]
    assert missing == [], f"{term}: not in {modules}"

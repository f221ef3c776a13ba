"""The list of deliberate differences from Cog matches the conformance tests that distinguish the servers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference" / "cog.md"
CONFORMANCE = ROOT / "tests" / "conformance"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def section() -> str:
    """The section of the reference with the tables of differences."""
    text = REFERENCE.read_text()
    return text[text.index("\n## Deliberate differences\n") :]


def listed() -> set[str]:
    """The tests that the list names, as `tests/…/file.py` or `tests/…/file.py::name`."""
    return set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)*)`", section()))


def functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    """All functions of a module or class, with their names as pytest writes them."""
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{prefix}{node.name}::")


def mentions(function: Function, names: set[str]) -> bool:
    """Whether a function uses one of these attributes, functions or fixtures."""
    arguments = {argument.arg for argument in function.args.args}
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return bool(names & (arguments | used | attributes))


def distinguishing() -> set[str]:
    """The conformance tests that expect another result from Cog than from tidegate."""
    found: set[str] = set()
    for file in sorted(CONFORMANCE.glob("test_*.py")):
        all_functions = list(functions(ast.parse(file.read_text()).body))
        tests = {name for name, _ in all_functions if name.rpartition("::")[2].startswith("test_")}
        helpers = {name for name, node in all_functions if name not in tests and mentions(node, {"is_cog"})}
        for name, node in all_functions:
            if name in tests and mentions(node, {"is_cog"} | helpers):
                found.add(f"{file.relative_to(ROOT)}::{name}")
    return found


def test_every_case_that_distinguishes_the_servers_is_in_the_list() -> None:
    expected = {test for test in distinguishing() if test not in listed()}
    assert expected == set(), "add a row to docs/reference/cog.md, or compare the servers"


def test_every_conformance_test_in_the_list_distinguishes_the_servers() -> None:
    in_list = {test for test in listed() if test.startswith("tests/conformance/")}
    assert in_list - distinguishing() == set(), "name the test that shows the difference"


def test_every_test_in_the_list_exists() -> None:
    missing = []
    for test in listed():
        file, _, name = test.partition("::")
        names = {known for known, _ in functions(ast.parse((ROOT / file).read_text()).body)}
        if name and name not in names:
            missing.append(test)
    assert missing == []


def test_the_list_covers_commands_health_checks_and_metrics() -> None:
    subjects = [line.split("|")[1] for line in section().splitlines() if line.startswith("| ")]
    for subject in ("`predict`", "Health checks", "Messages of metrics"):
        assert any(subject in row for row in subjects), subject

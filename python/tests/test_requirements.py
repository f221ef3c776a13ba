"""The packages that a model needs, compared with those that are installed."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from tidegate.requirements import advice, unmet

PYTEST = version("pytest")


@pytest.mark.parametrize(
    "requirement",
    [
        "pytest",
        f"pytest=={PYTEST}",
        f"PyTest [dev] == {PYTEST}",
        f"pytest=={PYTEST}.0",
        f"pytest=={PYTEST.partition('.')[0]}.*",
        "pytest>=1,<999",
        "nothing-like-this==1; python_version < '3'",
        "./wheels/nothing-1-py3-none-any.whl",
        "git+https://example.com/nothing.git",
        "nothing @ https://example.com/nothing.whl ; sys_platform == 'win32'",
    ],
)
def test_a_requirement_is_met_or_cannot_be_compared(requirement: str) -> None:
    assert unmet([requirement]) == []


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("nothing-like-this", "not installed"),
        ("nothing-like-this==1.0", "not installed"),
        ("pytest==0.0.1", f"installed: {PYTEST}"),
        ("pytest===0.0.1", f"installed: {PYTEST}"),
        ("pytest==0.*", f"installed: {PYTEST}"),
    ],
)
def test_a_requirement_that_is_not_met_has_a_reason(requirement: str, reason: str) -> None:
    assert unmet([requirement]) == [f"{requirement} ({reason})"]


def test_the_advice_has_the_command() -> None:
    assert "pytest==0.0.1" in advice(["pytest==0.0.1", "pytest"], "/m")
    assert advice(["pytest==0.0.1"], "/m").endswith("\n  try: tidegate install /m")
    assert advice([], "/m y").endswith("then run `tidegate install '/m y'`")


def test_an_import_error_ends_with_the_advice(launch) -> None:
    reason = launch("import nothing_like_this\ndef f() -> str: return ''", ref="predict.py:f").fatal()[
        "reason"
    ]
    assert "`python_packages`" in reason and "tidegate install" in reason

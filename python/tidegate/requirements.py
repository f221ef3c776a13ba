"""Compares the packages that a model needs with those that are installed.

The server passes the requirements of `cog.yaml`; this file reads no configuration. It runs only when an
import has failed, and for `tidegate doctor`: `python -m tidegate.requirements REQUIREMENT…` prints one line
for each requirement that is not met.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME_END = "[<>=!~; @("


def unmet(requirements: "Iterable[str]") -> "list[str]":
    """Return the requirements that are not met, each with what is installed instead."""
    problems = []
    for requirement in requirements:
        installed = _installed_version(_name(requirement))
        pinned = _pinned_version(requirement)
        if installed is None:
            # A requirement for other systems or versions of Python may be missing on purpose.
            if ";" not in requirement and _is_name(_name(requirement)):
                problems.append(f"{requirement} (not installed)")
        elif pinned is not None and not _matches(installed, pinned):
            problems.append(f"{requirement} (installed: {installed})")
    return problems


def advice(requirements: "Iterable[str]", model_dir: str) -> str:
    """Say how to install what a failed import needs, in lines that follow the error message."""
    import shlex

    command = f"tidegate install {shlex.quote(model_dir)}"
    problems = unmet(requirements)
    if not problems:
        return (
            f"\n  try: add the package to `python_packages` below `build` in cog.yaml, then run `{command}`"
        )
    lines = [f"\n  cog.yaml requires packages that `{sys.executable}` does not have:"]
    lines += [f"\n    {problem}" for problem in problems]
    return "".join(lines) + f"\n  try: {command}"


def _name(requirement: str) -> str:
    end = min((requirement.find(c) for c in _NAME_END if c in requirement), default=len(requirement))
    return requirement[:end].strip()


def _is_name(text: str) -> bool:
    """Tell names from paths and URLs, whose package is not known."""
    return text.replace("-", "").replace("_", "").replace(".", "").isalnum()


def _pinned_version(requirement: str) -> "str | None":
    specifier = requirement.partition(";")[0].partition("==")[2].lstrip("=").strip()
    return None if not specifier or "," in specifier else specifier


def _installed_version(name: str) -> "str | None":
    from importlib import metadata

    try:
        return metadata.version(name) if _is_name(name) else None
    except Exception:  # not installed, or its metadata is damaged
        return None


def _matches(installed: str, pinned: str) -> bool:
    if pinned.endswith(".*"):
        return f"{installed}.".startswith(pinned[:-1])
    if "+" not in pinned:
        installed = installed.partition("+")[0]  # 2.1.0+cu118 is a build of 2.1.0
    return _without_zeros(installed) == _without_zeros(pinned)


def _without_zeros(version: str) -> str:
    """Return the version without trailing zeros: 1.0 and 1.0.0 are the same."""
    while version.endswith(".0"):
        version = version[:-2]
    return version.lower()


if __name__ == "__main__":
    for _problem in unmet(sys.argv[1:]):
        print(_problem)

"""docs/reference/cli.md lists every option of the command line."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/cli.md").read_text("utf-8")
SOURCES = [ROOT / "crates/tidegate/src/cli.rs", *sorted((ROOT / "crates/tidegate/src/cli").rglob("*.rs"))]
CODE = "".join(file.read_text("utf-8") for file in SOURCES if file.exists())

#: Secrets, which have a variable and no flag.
WITHOUT_FLAG = {
    "TIDEGATE_API_TOKEN",
    "TIDEGATE_API_TOKENS",
    "TIDEGATE_DIRECTOR_TOKEN",
    "TIDEGATE_JOIN_KEY",
    "TIDEGATE_WEBHOOK_SECRET",
}
GROUPS = [
    "Model",
    "Endpoints",
    "Listening",
    "Access",
    "Queue and limits",
    "Storage",
    "Queue in Redis",
    "Router",
    "Webhooks",
    "Files",
    "GPUs",
    "Process",
]


def test_every_environment_variable_is_listed():
    variables = set(re.findall(r'env = "([A-Z_]+)"', CODE))
    assert len(variables) > 50
    assert variables - set(re.findall(r"[A-Z_]+", PAGE)) == set()


def test_every_listed_variable_exists():
    listed = set(re.findall(r"\bTIDEGATE_[A-Z_]+", PAGE))
    assert listed - set(re.findall(r'env = "([A-Z_]+)"', CODE)) == WITHOUT_FLAG


def test_the_options_of_serve_are_grouped():
    serve = PAGE.partition("## `serve`\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (.*)$", serve, re.M) == GROUPS

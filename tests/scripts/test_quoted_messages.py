"""The error messages that the guides explain are messages of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    "docs/guide/getting-started.md": "## Common errors",
    "docs/guide/runpod-worker.md": "## Troubleshooting",
}
#: Not our words: of the system, of Python.
FOREIGN = re.compile(r"Address already in use|ModuleNotFoundError: No module named")
#: What a message says differently each time.
VARIABLE = re.compile(r"…|`[^`]*`|127\.0\.0\.1:5000|\b[A-Z]+(?:_[A-Z]+){2,}\b|\b\d+\b")


def source_text() -> str:
    """Return the sources of the program, with string literals joined that are continued on the next line."""
    files = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("python/tidegate/**/*.py")]
    return re.sub(r"\\\n\s*", "", "\n".join(file.read_text("utf-8") for file in files))


def quoted_messages():
    for page, heading in TABLES.items():
        section = (ROOT / page).read_text("utf-8").partition(heading)[2].partition("\n## ")[0]
        for _, message in re.findall(r"^\| (`{1,2})(.+?)\1[ ,(]", section, re.M):
            yield page, message


@pytest.fixture(scope="module")
def sources():
    return source_text()


@pytest.mark.parametrize(("page", "message"), list(quoted_messages()))
def test_a_quoted_message_is_in_the_sources(sources, page, message):
    fragments = [part.strip(" `:;,.") for part in VARIABLE.split(FOREIGN.sub("…", message))]
    missing = [fragment for fragment in fragments if len(fragment) > 3 and fragment not in sources]
    assert missing == [], f"{page} quotes a message that the program does not print"

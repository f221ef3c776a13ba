"""The report: one line per fact, and whether it is what it must be."""

import sys
from dataclasses import dataclass, field


@dataclass
class Report:
    """The lines so far and the number of failures."""

    lines: list[str] = field(default_factory=list)
    n_failed: int = 0

    def section(self, title: str) -> None:
        self._add(f"\n## {title}\n")

    def fact(self, text: str) -> None:
        self._add(f"- {text}")

    def check(self, text: str, *, holds: bool) -> None:
        """A fact that has to hold."""
        self._add(f"- {'ok' if holds else 'FAILED'}: {text}")
        self.n_failed += not holds

    def table(self, head: list[str], rows: list[list[str]]) -> None:
        self._add("| " + " | ".join(head) + " |")
        self._add("|" + "---|" * len(head))
        for row in rows:
            self._add("| " + " | ".join(row) + " |")

    def failed(self, text: str) -> None:
        self.check(text, holds=False)

    def _add(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)
        sys.stdout.flush()

"""A client for server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    name: str
    data: Any
    #: What a client sends as `Last-Event-ID` to get the events after this one.
    id: str = field(default="", compare=False)


class EventStream:
    """An open SSE response; iterate over its events."""

    def __init__(self, response: requests.Response) -> None:
        self.response = response
        self.status = response.status_code
        self.headers = response.headers
        self._events = self._parse()

    def _parse(self) -> Iterator[Event]:
        name, data, id = "", [], ""
        for line in self.response.iter_lines(chunk_size=1):
            text = line.decode()
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("id: "):
                id = text.removeprefix("id: ")
            elif text.startswith("data: "):
                data.append(text.removeprefix("data: "))
            elif not text and name:
                yield Event(name, json.loads("\n".join(data)), id)
                name, data = "", []

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def next(self, name: str) -> Event:
        """The next event called `name`; events before it are skipped."""
        for event in self._events:
            if event.name == name:
                return event
        raise AssertionError(f"the stream ended without an event {name!r}")

    def rest(self) -> list[Event]:
        return list(self._events)

    def close(self) -> None:
        self.response.close()

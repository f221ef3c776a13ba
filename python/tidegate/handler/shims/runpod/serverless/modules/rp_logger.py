"""Log lines in Runpod's format: `INFO   | job | text`, or JSON when `RUNPOD_ENDPOINT_ID` is set."""

import json
import os
from contextvars import ContextVar
from typing import ClassVar

MAX_MESSAGE_LENGTH = 4096
LOG_LEVELS = ["NOTSET", "TRACE", "DEBUG", "INFO", "WARN", "ERROR"]

_batch_id: "ContextVar[str | None]" = ContextVar("runpod_batch_id", default=None)


def _set_batch_id(batch_id: "str | None") -> None:
    """Set the batch id that precedes every line of this job."""
    _batch_id.set(batch_id)


def _level(given: object) -> str:
    if isinstance(given, int) and 0 <= given < len(LOG_LEVELS):
        return LOG_LEVELS[given]
    if isinstance(given, str):
        given = given.upper()
        if given in LOG_LEVELS:
            return given
    raise ValueError(f"Invalid debug level: {given}")


def _shortened(text: str) -> str:
    """Remove the middle of a long text."""
    n_omitted = len(text) - MAX_MESSAGE_LENGTH
    if n_omitted <= 0:
        return text
    half = MAX_MESSAGE_LENGTH // 2
    return f"{text[:half]}\n...TRUNCATED {n_omitted} CHARACTERS...\n{text[-half:]}"


class RunPodLogger:
    """The logger; a singleton."""

    _instance: ClassVar["RunPodLogger | None"] = None
    level = _level(os.environ.get("RUNPOD_LOG_LEVEL", os.environ.get("RUNPOD_DEBUG_LEVEL", "DEBUG")))

    def __new__(cls) -> "RunPodLogger":
        """Return the singleton."""
        if RunPodLogger._instance is None:
            RunPodLogger._instance = super().__new__(cls)
        return RunPodLogger._instance

    def set_level(self, new_level: "str | int") -> None:
        """Set the minimum level, by name or number."""
        self.level = _level(new_level)
        self.info(f"Log level set to {self.level}")

    def log(self, message: object, message_level: str = "INFO", job_id: "str | None" = None) -> None:
        """Write a line if its level is enabled. `TIP` is always enabled."""
        if self.level == "NOTSET":
            return
        if message_level != "TIP" and LOG_LEVELS.index(message_level) < LOG_LEVELS.index(self.level):
            return
        batch = _batch_id.get()
        text = _shortened(f"[batchId={batch}] {message}" if batch else str(message))
        if os.environ.get("RUNPOD_ENDPOINT_ID"):
            print(json.dumps({"requestId": job_id, "message": text, "level": message_level}), flush=True)
            return
        print(f"{message_level:<7}| {f'{job_id} | ' if job_id else ''}{text}", flush=True)

    def secret(self, secret_name: str, secret: object) -> None:
        """Write only the first and last character of a secret."""
        text = str(secret)
        self.info(f"{secret_name}: {text[:1]}{'*' * (len(text) - 2)}{text[-1:]}")

    def debug(self, message: object, request_id: "str | None" = None) -> None:
        """Write a debug message."""
        self.log(message, "DEBUG", request_id)

    def info(self, message: object, request_id: "str | None" = None) -> None:
        """Write an info message."""
        self.log(message, "INFO", request_id)

    def warn(self, message: object, request_id: "str | None" = None) -> None:
        """Write a warning."""
        self.log(message, "WARN", request_id)

    def error(self, message: object, request_id: "str | None" = None) -> None:
        """Write an error."""
        self.log(message, "ERROR", request_id)

    def tip(self, message: object) -> None:
        """Write a tip."""
        self.log(message, "TIP")

    def trace(self, message: object, request_id: "str | None" = None) -> None:
        """Write a trace message."""
        self.log(message, "TRACE", request_id)

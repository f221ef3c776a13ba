"""Measures the time of parts of a handler."""

import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, ClassVar


class Checkpoints:
    """The list of named timings; a singleton."""

    _instance: ClassVar["Checkpoints | None"] = None
    checkpoints: list[dict[str, Any]]
    name_lookup: dict[str, int]

    def __new__(cls) -> "Checkpoints":
        """Return the singleton."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.clear()
        return cls._instance

    def add(self, name: str) -> None:
        """Add a checkpoint."""
        if name in self.name_lookup:
            raise KeyError(f'Checkpoint name "{name}" already exists.')
        self.name_lookup[name] = len(self.checkpoints)
        self.checkpoints.append({"name": name})

    def start(self, name: str) -> None:
        """Start the measurement."""
        self._record(name, "start", "start_utc")

    def stop(self, name: str) -> None:
        """Stop the measurement."""
        if "start" not in self._get(name):
            raise KeyError("Checkpoint has not been started.")
        self._record(name, "end", "stop_utc")

    def get_checkpoints(self) -> list[dict[str, Any]]:
        """Return the checkpoints whose measurement is complete."""
        done = [point for point in self.checkpoints if "start" in point and "end" in point]
        for point in done:
            point["duration_ms"] = (point.pop("end") - point.pop("start")) * 1000
        return done

    def clear(self) -> None:
        """Remove all checkpoints."""
        self.checkpoints = []
        self.name_lookup = {}

    def _get(self, name: str) -> dict[str, Any]:
        if name not in self.name_lookup:
            raise KeyError(f"Checkpoint name '{name}' does not exist.")
        return self.checkpoints[self.name_lookup[name]]

    def _record(self, name: str, clock: str, timestamp: str) -> None:
        point = self._get(name)
        point[clock] = time.perf_counter()
        point[timestamp] = datetime.now(timezone.utc).isoformat() + "Z"


class LineTimer:
    """Measures a `with` block."""

    def __init__(self, name: str) -> None:
        """Add a checkpoint with this name."""
        self.checkpoints = Checkpoints()
        self.name = name
        self.checkpoints.add(name)

    def __enter__(self) -> None:
        """Start the measurement."""
        self.checkpoints.start(self.name)

    def __exit__(self, *_details: object) -> None:
        """Stop the measurement, also if the block raised."""
        self.checkpoints.stop(self.name)


class FunctionTimer:
    """A decorator that measures the calls of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Decorate the function."""
        self.function = function
        self.checkpoints = Checkpoints()

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the function and measure the time."""
        name = self.function.__name__
        self.checkpoints.add(name)
        try:
            self.checkpoints.start(name)
            return self.function(*args, **kwargs)
        finally:
            # The function may have cleared the list.
            if name in self.checkpoints.name_lookup:
                self.checkpoints.stop(name)


def get_debugger_output() -> dict[str, Any]:
    """Return the timings and clear them."""
    import runpod

    points = Checkpoints()
    timestamps = points.get_checkpoints()
    points.clear()
    return {
        "system_info": {
            "os": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "python_version": platform.python_version(),
            "runpod": runpod.__version__,
        },
        "timestamps": timestamps,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "Unable to get processor info."


def clear_debugger_output() -> None:
    """Clear the timings."""
    Checkpoints().clear()

"""The functions that a handler script calls. tidegate replaces `start` and `progress_update`."""

from typing import Any

from ..version import __version__ as runpod_version
from .modules.rp_fitness import register_fitness_check
from .modules.rp_logger import RunPodLogger
from .modules.rp_progress import progress_update
from .utils.rp_volume_cache import VolumeCache

log = RunPodLogger()

__all__ = ["VolumeCache", "progress_update", "register_fitness_check", "runpod_version", "start"]


def start(config: dict[str, Any]) -> None:
    """Serve jobs with `config["handler"]`."""
    raise RuntimeError(
        "only `tidegate serve` and `tidegate worker` can start a handler with this replacement for runpod"
    )

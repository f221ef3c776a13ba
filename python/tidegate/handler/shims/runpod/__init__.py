"""A replacement for Runpod's package, for handlers on machines where it is not installed.

It has what handlers use. Clients of Runpod's own cloud need the real package.
"""

import os

from . import serverless
from .serverless.modules.rp_logger import RunPodLogger
from .version import __version__

profile = "default"
api_key: str | None = None
endpoint_url_base = os.environ.get("RUNPOD_ENDPOINT_BASE_URL", "https://api.runpod.ai/v2")

__all__ = ["RunPodLogger", "__version__", "api_key", "endpoint_url_base", "profile", "serverless"]


def __getattr__(name: str) -> object:
    """Raise an error that says how to get the missing name."""
    raise AttributeError(
        f"`runpod.{name}` is not in tidegate's replacement for runpod; `pip install runpod` provides it"
    )

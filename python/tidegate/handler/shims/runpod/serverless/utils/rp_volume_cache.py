"""Folders that outlive a worker on Runpod's network volume. Without the real package they do not."""

from runpod.serverless.modules.rp_logger import RunPodLogger


class VolumeCache:
    """Takes the calls and keeps nothing: there is no volume here, and folders stay where they are."""

    def __init__(self, dirs: "str | list[str]", **_options: object) -> None:
        """Remember nothing but the names."""
        self.dirs = [dirs] if isinstance(dirs, str) else list(dirs)

    @property
    def available(self) -> bool:
        """Say that there is no volume."""
        return False

    def hydrate(self) -> int:
        """Bring nothing back."""
        RunPodLogger().warn("VolumeCache does nothing without Runpod's package and volume")
        return 0

    def sync(self, *, background: bool = True) -> None:
        """Take nothing away."""

    def __enter__(self) -> "VolumeCache":
        """Begin."""
        self.hydrate()
        return self

    def __exit__(self, *_details: object) -> None:
        """End."""

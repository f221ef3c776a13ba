"""Holds memory of fake GPUs, as CUDA does: what `tests/gpu/fake_gpus.py` describes."""

import os
from pathlib import Path


def visible() -> list[str]:
    """The UUIDs of the GPUs that this process may use."""
    lines = [
        dict(field.split("=", 1) for field in line.split("\t"))
        for line in _state("gpus").read_text().splitlines()
    ]
    by_name = {line["uuid"] if "place" in line else line["gpu"]: line["uuid"] for line in lines}
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(by_name.values())
    return [by_name[name] for name in wanted.split(",") if name]


def hold(size: int, device: int = 0) -> None:
    """Hold this many bytes on a visible GPU; fail like CUDA if it does not have them."""
    uuid = visible()[device]
    free = _total(uuid) - sum(_held_by_others(uuid))
    if size > free:
        raise MemoryError(f"CUDA out of memory: {size} bytes asked for, {free} bytes free")
    _state("processes", f"{uuid}.{os.getpid()}").write_text(str(size))


def _total(uuid: str) -> int:
    for line in _state("gpus").read_text().splitlines():
        fields = dict(field.split("=", 1) for field in line.split("\t"))
        if fields["uuid"] == uuid:
            return int(fields.get("total", 1 << 62)) - int(fields["used"])
    raise KeyError(uuid)


def _held_by_others(uuid: str) -> list[int]:
    files = [file for file in _state("processes").iterdir() if file.name.startswith(f"{uuid}.")]
    held = []
    for file in files:
        pid = file.name.removeprefix(f"{uuid}.").split(".")[0]
        if pid != str(os.getpid()) and (file.suffix == ".linger" or Path(f"/proc/{pid}").exists()):
            held.append(int(file.read_text() or 0))
    return held


def _state(*parts: str) -> Path:
    return Path(os.environ["FAKE_NVML_STATE"], *parts)

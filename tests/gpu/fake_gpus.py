"""The state of the fake NVML: a folder that tests and models change while a server runs.

| file | content |
|---|---|
| `gpus` | one line per card or MIG device, `key=value` separated by tabs |
| `processes/UUID.PID` | the bytes that a process holds on a GPU; void when the process ends |
| `processes/UUID.PID.linger` | the same, but the memory stays used after the end |
| `xids` | lines `CARD XID`, each a critical error |
| `hang` | while it exists, no call of the library returns |
"""

from __future__ import annotations

import subprocess
from pathlib import Path

GIB = 1 << 30
SOURCE = Path(__file__).with_name("fake_nvml.c")
#: A model that shows its environment, and holds GPU memory with `fake_cuda.py`.
MODEL = Path(__file__).with_name("gpu_model")


def build_library(folder: Path) -> Path:
    """Compile the library into `folder`, which then can be in LD_LIBRARY_PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return library


class FakeGpus:
    """The GPUs of a fake machine."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.library = library
        self.lines: list[dict[str, object]] = []
        (folder / "processes").mkdir(parents=True)

    @property
    def env(self) -> dict[str, str]:
        """The variables with which a server sees these GPUs, and believes the process ids."""
        return {
            "LD_LIBRARY_PATH": str(self.library.parent),
            "FAKE_NVML_STATE": str(self.folder),
            "TIDEGATE_GPU_PIDS": "trust",
        }

    def card(self, number: int, **properties: object) -> None:
        """Add or change a card; `None` removes a property, so that it is not supported."""
        usual = {
            "uuid": f"GPU-{number:08x}-aaaa-bbbb-cccc-000000000000",
            "name": "NVIDIA Fake 80GB",
            "bus": f"00000000:{number + 1:02X}:00.0",
            "total": 80 * GIB,
            "used": 0,
            "utilization": 0,
            "temperature": 30,
        }
        self._set({"gpu": number}, usual, properties)

    def mig(self, card: int, place: int, **properties: object) -> None:
        """Add or change a MIG device; the card needs `mig=1`."""
        usual = {
            "uuid": f"MIG-{card}{place}",
            "name": "NVIDIA Fake MIG 1g.10gb",
            "total": 10 * GIB,
            "used": 0,
        }
        self._set({"gpu": card, "place": place}, usual, properties)

    def _set(self, key: dict[str, object], usual: dict[str, object], properties: dict[str, object]) -> None:
        def is_it(line: dict[str, object]) -> bool:
            return (line["gpu"], line.get("place")) == (key["gpu"], key.get("place"))

        line = next(filter(is_it, self.lines), None)
        if line is None:
            line = key | usual
            self.lines.append(line)
        line.update(properties)
        self.write()

    def write(self) -> None:
        fields = [
            [f"{key}={value}" for key, value in line.items() if value is not None] for line in self.lines
        ]
        text = "".join("\t".join(line) + "\n" for line in fields)
        new = self.folder / "gpus.new"
        new.write_text(text)
        new.replace(self.folder / "gpus")

    def uuid(self, card: int) -> str:
        return str(next(line["uuid"] for line in self.lines if line["gpu"] == card))

    def hold(self, card: int, pid: int, used: int, *, linger: bool = False) -> Path:
        """Let a process hold memory on a card."""
        file = self.folder / "processes" / f"{self.uuid(card)}.{pid}{'.linger' if linger else ''}"
        file.write_text(str(used))
        return file

    def xid(self, card: int, code: int) -> None:
        with (self.folder / "xids").open("a") as file:
            file.write(f"{card} {code}\n")

    def hang(self) -> None:
        (self.folder / "hang").touch()

    def recover(self) -> None:
        (self.folder / "hang").unlink()

"""A temporary folder of 16 MiB that is full, and has space again later.

Runs in its own mount namespace.
"""

import json
import subprocess
import sys
from pathlib import Path

from launch import start_tidegate

FILE = {"path": "data:text/plain;base64,aGVsbG8="}
LARGE = "x" * 7 * 1024 * 1024  # larger than a message: the model receives it through a file


def main(scratch: Path) -> dict[str, object]:
    temporary = scratch / "temporary"
    temporary.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", temporary], check=True)
    server = start_tidegate("journal", scratch, env={"TMPDIR": str(temporary)})
    journal, filler, found = server.directory / "journal", temporary / "filler", {}

    def predict(name: str, input: dict[str, object]) -> None:
        reply = server.post("/predictions", {"input": input | {"nonce": name}}, timeout=30)
        found[name] = [reply.status, reply.content_type, reply.json]

    try:
        predict("before", FILE)
        fill(filler)
        for number in range(10):
            predict(f"full{number}", FILE)
        predict("full-large", {"words": [LARGE]})
        predict("full-no-file", {})
        found["health"] = server.health()["status"]
        filler.unlink()
        predict("after", FILE)
        predict("after-large", {"words": [LARGE]})
        found["journal"] = journal.read_text().splitlines()
        found["left"] = [
            str(path) for path in temporary.rglob("*") if path.is_file() and path.name != ".lock"
        ]
    finally:
        server.stop()
    return found


def fill(path: Path) -> None:
    """Write until the file system is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

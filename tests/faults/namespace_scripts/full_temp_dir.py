"""A16: a folder for temporary files of 16 MiB that is full, and has room again.

Runs in a mount namespace of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

from servers import start_tidegate

FILE = {"path": "data:text/plain;base64,aGVsbG8="}
LARGE = "x" * 7 * 1024 * 1024  # goes to the model through a file


def main(scratch: Path) -> dict[str, object]:
    temporary = scratch / "temporary"
    temporary.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", temporary], check=True)
    server = start_tidegate("journal", scratch, env={"TMPDIR": str(temporary)})
    journal, filler, found = server.directory / "journal", temporary / "filler", {}

    def ask(word: str, input: dict[str, object]) -> None:
        reply = server.post("/predictions", {"input": input | {"nonce": word}}, timeout=30)
        found[word] = [reply.status, reply.content_type, reply.json]

    try:
        ask("before", FILE)
        fill(filler)
        for number in range(10):
            ask(f"full{number}", FILE)
        ask("full-large", {"words": [LARGE]})
        ask("full-no-file", {})
        found["health"] = server.health()["status"]
        filler.unlink()
        ask("after", FILE)
        ask("after-large", {"words": [LARGE]})
        found["journal"] = journal.read_text().splitlines()
        found["left"] = [
            str(path) for path in temporary.rglob("*") if path.is_file() and path.name != ".lock"
        ]
    finally:
        server.stop()
    return found


def fill(path: Path) -> None:
    """Write until nothing fits any more."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

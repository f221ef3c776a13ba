"""Files that do not fit into a data folder of 48 MiB.

Runs in its own mount namespace.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import requests
from launch import start_tidegate

MIB = 1024 * 1024


def main(scratch: Path) -> dict[str, object]:
    data, found = scratch / "data", {}
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", data], check=True)
    server = start_tidegate("files_out", scratch, env={"TIDEGATE_DATA_DIR": str(data)})

    def upload(name: str, size: int, **options: object) -> None:
        form = {"content": ("x", bytes(size))}
        reply = requests.post(f"{server.url}/v1/files", timeout=30, **(options or {"files": form}))
        found[name] = [reply.status_code, reply.headers["content-type"], reply.json().get("detail")]

    def predict(name: str, size: int) -> None:
        body = {"input": {"text": "x", "size": size}}
        path, headers = "/v1/models/local/files_out/predictions", {"Prefer": "wait"}
        made = server.post(path, body, headers=headers, timeout=60).json
        found[name] = [made["status"], made["error"], made["output"] is not None]

    try:
        upload("large", 60 * MIB)
        upload(
            "unannounced",
            0,
            data=in_pieces(60 * MIB),
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )
        predict("large-output", 60 * MIB)
        found["left"] = [path.name for path in (data / "files").iterdir()]
        upload("small", MIB)
        predict("small-output", MIB)
        found["health"] = server.health()["status"]
    finally:
        server.stop()
    return found


def in_pieces(size: int) -> Iterator[bytes]:
    """A form without a content length."""
    yield b'--b\r\nContent-Disposition: form-data; name="content"; filename="x"\r\n\r\n'
    for _ in range(size // MIB):
        yield bytes(MIB)
    yield b"\r\n--b--\r\n"


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

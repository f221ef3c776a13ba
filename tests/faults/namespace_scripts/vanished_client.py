"""B5: a client on the other end of a cable, which is pulled while the client waits for its answer.

Runs in namespaces of its own: the server's end of the cable is here, the client's in a third namespace.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from servers import Server, _launch, copy_model, free_port, tidegate_bin, tidegate_env, wait_until

HERE, THERE = "10.200.0.1", "10.200.0.2"
TOKEN = "token-of-the-test"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
BOUND = 100.0

#: The client: sends its request when it is told to, then waits for what never comes.
CLIENT = """
import socket, sys
print("ready", flush=True)
sys.stdin.readline()
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as server:
    server.sendall(sys.argv[3].encode())
    server.recv(1)
    sys.stdin.readline()
"""


class Neighbour(Server):
    """The server under test, at its address on the cable."""

    @property
    def url(self) -> str:
        return f"http://{HERE}:{self.port}"

    def request(self, *arguments, headers=None, **options):
        return super().request(*arguments, headers=HEADERS | (headers or {}), **options)


def main(scratch: Path) -> dict[str, object]:
    port, gate = free_port(), scratch / "gate"
    body = json.dumps({"input": {"nonce": "vanished", "gate": str(gate)}})
    request = (
        f"PUT /predictions/vanished HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    client = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", CLIENT, HERE, str(port), request],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None and client.stdin is not None
    client.stdout.readline()
    connect(client.pid)
    server = launch(scratch, port)
    try:
        client.stdin.write("go\n")
        client.stdin.flush()
        journal = server.directory / "journal"
        wait_until(lambda: journal.exists() and "begin vanished" in journal.read_text(), "the job to run")
        there(client.pid, "link", "set", "v1", "down")
        began = time.monotonic()
        status = wait_until(lambda: over(server), "the vanished client to be noticed", BOUND)
        noticed = time.monotonic() - began
        ran = server.post("/predictions", {"input": {"nonce": "next"}}).json["output"]
        return {"status": status, "seconds": noticed, "next": ran, "journal": journal.read_text().split("\n")}
    finally:
        client.kill()
        server.stop()


def connect(pid: int) -> None:
    """A cable between this namespace and the client's."""
    here = ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(pid)]
    subprocess.run(here, check=True)
    subprocess.run(["ip", "address", "add", f"{HERE}/30", "dev", "v0"], check=True)
    subprocess.run(["ip", "link", "set", "v0", "up"], check=True)
    there(pid, "address", "add", f"{THERE}/30", "dev", "v1")
    there(pid, "link", "set", "v1", "up")


def there(pid: int, *arguments: str) -> None:
    subprocess.run(["nsenter", "--target", str(pid), "--net", "ip", *arguments], check=True)


def launch(scratch: Path, port: int) -> Server:
    directory = copy_model("journal", scratch)
    command = [str(tidegate_bin()), "serve", str(directory), "--host", HERE, "--port", str(port)]
    env = tidegate_env(TIDEGATE_API_TOKENS=f"{TOKEN}:tester")
    started = _launch("tidegate", directory, port, command, env, ())
    server = Neighbour("tidegate", "journal", port, started.process, started.log_path, directory)
    server.wait_health("READY")
    return server


def over(server: Server) -> str | None:
    status = server.get("/predictions/vanished").json["status"]
    return status if status in ("succeeded", "failed", "canceled") else None


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

"""A client whose network link goes down while it waits for its response.

Runs in its own namespaces: the server's end of the link is in this one, the client's in a third one.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from environment import copy_model, free_port, tidegate_bin, tidegate_env
from launch import launch
from server_process import Server
from waiting import wait_until

SERVER_ADDRESS, CLIENT_ADDRESS = "10.200.0.1", "10.200.0.2"
TOKEN = "token-of-the-test"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
BOUND = 100.0

#: The client sends its request after a line on standard input, then waits for a response in vain.
CLIENT = """
import socket, sys
print("ready", flush=True)
sys.stdin.readline()
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as server:
    server.sendall(sys.argv[3].encode())
    server.recv(1)
    sys.stdin.readline()
"""


class LinkedServer(Server):
    """The server under test, at its address on the link."""

    @property
    def url(self) -> str:
        return f"http://{SERVER_ADDRESS}:{self.port}"

    def request(self, *arguments, headers=None, **options):
        return super().request(*arguments, headers=HEADERS | (headers or {}), **options)


def main(scratch: Path) -> dict[str, object]:
    port, gate = free_port(), scratch / "gate"
    body = json.dumps({"input": {"nonce": "vanished", "gate": str(gate)}})
    request = (
        f"PUT /predictions/vanished HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    client = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", CLIENT, SERVER_ADDRESS, str(port), request],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None and client.stdin is not None
    client.stdout.readline()
    link(client.pid)
    server = start_server(scratch, port)
    try:
        client.stdin.write("go\n")
        client.stdin.flush()
        journal = server.directory / "journal"
        wait_until(lambda: journal.exists() and "begin vanished" in journal.read_text(), "the job to run")
        ip_in_client_namespace(client.pid, "link", "set", "v1", "down")
        began = time.monotonic()
        status = wait_until(lambda: end_status(server), "the server to detect the lost client", BOUND)
        noticed = time.monotonic() - began
        ran = server.post("/predictions", {"input": {"nonce": "next"}}).json["output"]
        return {"status": status, "seconds": noticed, "next": ran, "journal": journal.read_text().split("\n")}
    finally:
        client.kill()
        server.stop()


def link(pid: int) -> None:
    """Link this namespace with the client's."""
    add = ["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(pid)]
    subprocess.run(add, check=True)
    subprocess.run(["ip", "address", "add", f"{SERVER_ADDRESS}/30", "dev", "v0"], check=True)
    subprocess.run(["ip", "link", "set", "v0", "up"], check=True)
    ip_in_client_namespace(pid, "address", "add", f"{CLIENT_ADDRESS}/30", "dev", "v1")
    ip_in_client_namespace(pid, "link", "set", "v1", "up")


def ip_in_client_namespace(pid: int, *arguments: str) -> None:
    subprocess.run(["nsenter", "--target", str(pid), "--net", "ip", *arguments], check=True)


def start_server(scratch: Path, port: int) -> Server:
    directory = copy_model("journal", scratch)
    command = [str(tidegate_bin()), "serve", str(directory), "--host", SERVER_ADDRESS, "--port", str(port)]
    env = tidegate_env(TIDEGATE_API_TOKENS=f"{TOKEN}:tester")
    started = launch("tidegate", directory, port, command, env, ())
    server = LinkedServer("tidegate", "journal", port, started.process, started.log_path, directory)
    server.wait_health("READY")
    return server


def end_status(server: Server) -> str | None:
    status = server.get("/predictions/vanished").json["status"]
    return status if status in ("succeeded", "failed", "canceled") else None


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

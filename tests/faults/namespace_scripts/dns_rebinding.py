"""DNS rebinding: a name server that changes its answers, and a public and a private receiver on one port.

Runs in its own namespaces: 93.184.216.34 is a local address here, and the resolver asks `NameServer`.
"""

import json
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from launch import start_tidegate
from receiver import Receiver
from waiting import wait_until

PUBLIC, PRIVATE = "93.184.216.34", "127.0.0.1"
ATTEMPTS = 12
#: The addresses of a name at its first lookup, its second, and so on, repeated.
NAMES = {
    "public.test": [[PUBLIC]],
    "private.test": [[PRIVATE]],
    "metadata.test": [["169.254.169.254"]],
    "both.test": [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC]],
    "rebinds.test": [[PUBLIC], [PRIVATE]],
    "rebinds-soon.test": [[PRIVATE], [PUBLIC]],
}


class NameServer:
    def __init__(self) -> None:
        self.lookups: Counter[str] = Counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((PRIVATE, 53))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            query, peer = self._socket.recvfrom(4096)
            self._socket.sendto(self._answer(query), peer)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode().lower())
            at += length + 1
        name, (kind,) = ".".join(labels), struct.unpack(">H", query[at + 1 : at + 3])
        addresses: list[str] = []
        if kind == 1 and name in NAMES:
            addresses = NAMES[name][self.lookups[name] % len(NAMES[name])]
            self.lookups[name] += 1
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(addresses), 0, 0)
        # A time to live of zero: nothing is cached.
        records = [
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(one) for one in addresses
        ]
        return head + query[12 : at + 5] + b"".join(records)


def main(scratch: Path) -> dict[str, object]:
    subprocess.run(["ip", "address", "add", f"{PUBLIC}/32", "dev", "lo"], check=True)
    resolver = scratch / "resolv.conf"
    resolver.write_text(f"nameserver {PRIVATE}\noptions timeout:1 attempts:1\n")
    subprocess.run(["mount", "--bind", resolver, Path("/etc/resolv.conf").resolve()], check=True)

    names, public = NameServer(), Receiver(PUBLIC)
    port = int(public.url.rpartition(":")[2])
    private = Receiver(PRIVATE, port)
    public.plan("/file", body=b"content")
    private.plan("/file", body=b"secret")

    server = start_tidegate("files_in", scratch, env={"TIDEGATE_ALLOW_PRIVATE_NETWORKS": None})
    outputs = []
    try:
        for name in NAMES:
            count = 1 if name in ("public.test", "metadata.test") else ATTEMPTS
            for _ in range(count):
                url = f"http://{name}:{port}"
                path = None if name == "metadata.test" else f"{url}/file"
                body = {"input": {"path": path} if path else {}, "webhook": f"{url}/{name}"}
                reply = server.post("/predictions", body)
                outputs.append([name, reply.status, reply.json.get("status"), str(reply.json.get("output"))])
                wait_until(lambda name=name: names.lookups[name], f"{name} to be looked up")
        public.wait_terminal("/public.test")
        wait_until(lambda: names.lookups["rebinds.test"] >= 2, "the name to change its address")
    finally:
        server.stop()
    return {
        "outputs": outputs,
        "public": [one.path for one in public._received],
        "private": [one.path for one in private._received],
        "lookups": dict(names.lookups),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

"""Private addresses, which a client must not make the server call, in every spelling that parsers accept."""

from __future__ import annotations

from pathlib import Path

#: Hosts as written in a URL. All are loopback, private, link-local or reserved addresses.
PRIVATE_HOSTS = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "%31%32%37.0.0.1",
    "127\u30020\u30020\u30021",
    "\uff11\uff12\uff17.0.0.1",
    "\u2460\u2461\u2466.0.0.1",
    "0",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:a9fe:a9fe]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[fd00::1]",
    "[fc00::1]",
    "[fe80::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[fd00:ec2::254]",
    "localhost",
    "LOCALHOST",
    "LocalHost.",
    "any.localhost",
    "example.com@127.0.0.1",
    "example.com:80@127.0.0.1",
]


def name_of_this_machine() -> str:
    """A name from the hosts file, other than `localhost`, of a loopback address."""
    for line in Path("/etc/hosts").read_text().splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if address.startswith("127.") or address == "::1":
            for name in names:
                if not name.startswith("localhost"):
                    return name
    raise AssertionError("/etc/hosts has no name of a loopback address except localhost")

"""A child that dies while descriptors run short is replaced when there are some again."""

from __future__ import annotations

import os
import resource
import signal
import time

from launch import start_tidegate
from processes import descendants
from waiting import START_TIMEOUT

#: As long as a server that counts every attempt would take to give up.
SHORTAGE = 5.0
#: Which step of a start fails depends on how many are left.
FREE = (0, 1, 2, 3)


def test_a_shortage_of_descriptors_does_not_end_the_model(tmp_path):
    servers = []
    for number in FREE:
        (tmp_path / str(number)).mkdir()
        servers.append(start_tidegate("echo", tmp_path / str(number)))
    before = {}
    try:
        for number, server in zip(FREE, servers, strict=True):
            pid = server.process.pid
            before[pid] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            highest = max(map(int, os.listdir(f"/proc/{pid}/fd")))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + number, before[pid][1]))
            for child in descendants(pid):
                os.kill(child, signal.SIGKILL)
        time.sleep(SHORTAGE)
        for pid, limits in before.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        for server in servers:
            server.wait_health("READY", timeout=START_TIMEOUT)
    finally:
        for server in servers:
            server.stop()

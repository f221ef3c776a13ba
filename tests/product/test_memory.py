"""Neither process grows with the number of jobs."""

from pathlib import Path

import pytest
from processes import descendants

MIB = 1024 * 1024


def resident(pid: int) -> int:
    """Anonymous memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("model", ["echo", "concurrent"])
def test_inputs_and_outputs_are_released(start_server, model):
    server = start_server(model)
    child = descendants(server.process.pid)[0]
    text = "x" * MIB

    def rounds(count: int) -> tuple[int, int]:
        for _ in range(count):
            assert server.predict({"text": text}).status == 200
        return resident(server.process.pid), resident(child)

    # The server keeps some of the past on purpose, up to 32 MiB of it.
    before, after = rounds(40), rounds(30)
    growth = [now - then for now, then in zip(after, before, strict=True)]
    assert max(growth) < 25 * MIB, growth

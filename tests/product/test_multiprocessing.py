"""Models that start processes of their own."""

import pytest


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
def test_a_pool_of_processes(fresh, how):
    assert fresh("spawn").predict({"how": how}, timeout=30).json["output"] == [0, 1, 4]

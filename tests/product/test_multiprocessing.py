"""Models that start processes of their own."""

import pytest


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
def test_a_model_can_use_a_multiprocessing_pool(start_server, how):
    assert start_server("spawn").predict({"how": how}, timeout=30).json["output"] == [0, 1, 4]

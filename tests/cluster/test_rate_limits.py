"""Rate limits hold for all API processes of a cluster together."""

from __future__ import annotations

import itertools

import requests
from cluster import Cluster
from waiting import wait_until

ANN, BOB = "ann-has-a-long-token", "bob-has-a-long-token"
ENV = {
    "TIDEGATE_API_TOKENS": f"{ANN}:ann,{BOB}:bob",
    "TIDEGATE_RATE_LIMIT": "6/h",
    "TIDEGATE_RATE_LIMIT_CREATE": "3/h",
}


def test_an_account_that_alternates_between_processes_has_one_limit(new_cluster: Cluster) -> None:
    apis = [new_cluster.start_api(env=ENV) for _ in range(2)]
    turns = itertools.cycle(apis)

    def get(token: str) -> requests.Response:
        url = f"{next(turns).url}/v1/models"
        return requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=20)

    def create(token: str) -> int:
        url, headers = f"{next(turns).url}/v1/predictions", {"Authorization": f"Bearer {token}"}
        body = {"version": "0" * 64, "input": {}}
        return requests.post(url, json=body, headers=headers, timeout=20).status_code

    replies = [get(ANN) for _ in range(7)]
    assert [reply.status_code for reply in replies] == [200] * 6 + [429]
    assert [int(reply.headers["ratelimit-remaining"]) for reply in replies] == [5, 4, 3, 2, 1, 0, 0]
    assert 1 <= int(replies[-1].headers["retry-after"]) <= 600
    assert get(ANN).status_code == 429, "also at the other process"
    assert get(BOB).status_code == 200
    assert [create(ANN) for _ in range(4)] == [422] * 3 + [429], "another limit"

    # Without Redis each process counts for itself, and does not forget what it knows.
    new_cluster.redis.stop()
    assert [get(ANN).status_code for _ in range(2)] == [429, 429]
    # One process has counted a request of Bob, the other none.
    left = [get(BOB).status_code for _ in range(20)]
    assert (left.count(200), left.count(429)) == (5 + 6, 9), left
    new_cluster.redis.start()

    def is_counted() -> bool:
        get(BOB)
        return new_cluster.redis.call("EXISTS", "limit:other:bob") == "1"

    wait_until(is_counted, "the processes to use Redis again", 30)

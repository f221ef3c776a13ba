"""The limits of Runpod's cloud, and the reaction of its clients to a refusal."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from platform_server import ANN, BOB, TOKENS, running_platform
from waiting import wait_until


def test_requests_per_ten_seconds_are_limited(tmp_path: Path) -> None:
    with running_platform(tmp_path, "--cloud-limits") as server:
        replies = [server.call("POST", "/v2/echo/purge-queue") for _ in range(3)]
        assert [reply.status_code for reply in replies] == [200, 200, 429]
        assert 1 <= int(replies[2].headers["retry-after"]) <= 11
        assert set(replies[2].json()) == {"status", "error"}
        assert server.run({"a": 1}), "other questions have limits of their own"


def test_concurrent_requests_are_limited_and_the_asyncio_client_retries(tmp_path: Path) -> None:
    with running_platform(tmp_path, "--cloud-limits") as server, ExitStack() as waiting:
        job = server.run({"a": 1})
        for _ in range(400):
            connection = waiting.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            question = f"GET /v2/echo/status-sync/{job}?wait=300000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(question.encode())
        ask = f"/v2/echo/status/{job}"
        wait_until(lambda: server.call("GET", ask).status_code == 429, "the limit")
        refused = server.call("GET", ask)
        assert (refused.headers["retry-after"], "concurrent" in refused.json()["error"]) == ("1", True)
        snippet = f"""
async def main():
    async with http_client.AsyncClientSession() as session:
        headers = {{"Authorization": "Bearer none"}}
        report(await AsyncioJob("echo", {job!r}, session, headers).status())
asyncio.run(main())
"""
        assert server.client(snippet) == ["THROTTLED"]
        waiting.close()
        wait_until(lambda: server.client(snippet) == ["IN_QUEUE"], "room again", timeout=40)


def test_the_limit_grows_with_the_number_of_workers(tmp_path: Path) -> None:
    with running_platform(tmp_path, "--cloud-limits") as server, ExitStack() as waiting:
        for number in range(60):
            connection = waiting.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            question = f"GET /v2/echo/job-take/w{number} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(question.encode())
        wait_until(lambda: server.health()["workers"]["idle"] == 60, "the workers")
        replies = [server.call("POST", "/v2/echo/purge-queue").status_code for _ in range(4)]
        assert replies == [200, 200, 200, 429]


def test_limits_are_per_account(tmp_path: Path) -> None:
    with running_platform(tmp_path, "--cloud-limits", env=TOKENS, token=ANN) as server:
        path = "/v2/echo/purge-queue"
        assert [server.call("POST", path).status_code for _ in range(3)] == [200, 200, 429]
        assert server.call("POST", path, headers={"Authorization": BOB}).status_code == 200


def test_there_are_no_limits_by_default(tmp_path: Path) -> None:
    with running_platform(tmp_path) as server:
        assert {server.call("GET", "/v2/echo/requests").status_code for _ in range(12)} == {200}

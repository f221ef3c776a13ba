"""Accounts: tokens, limits of one account that leave others alone, and priorities."""

from __future__ import annotations

import subprocess

import openai
import pytest
from environment import tidegate_bin, tidegate_env
from fleet_file import OPERATOR, account, endpoint, fleet_toml, model
from stub_upstream import Exchange, answer_chat
from waiting import wait_until

ADMIN = "operator-token"


async def hold(exchange: Exchange) -> None:
    await exchange.hold()
    await answer_chat(exchange)


def test_only_tokens_of_accounts_are_accepted(router, upstream):
    running = router(model("m", endpoint(upstream.url)), accounts=(account("a"),))
    for token in (None, "wrong", "sha256:00"):
        reply = running.chat(token=token)
        assert (reply.status, reply.json["error"]["code"]) == (401, "invalid_api_key")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert running.chat(token="a-token").status == 200
    assert running.chat(headers={"x-api-key": "a-token"}).status == 200
    client = openai.OpenAI(base_url=running.openai_url, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        client.models.list()
    assert upstream.n_requests == 2


def test_tokens_are_neither_logged_nor_shown(router, upstream):
    running = router(
        model("m", endpoint(upstream.url, headers={"authorization": "Bearer backend-secret"})),
        accounts=(OPERATOR, account("a")),
    )
    running.chat(token="a-token")
    running.chat(token="a-wrong-secret")
    shown = str(running.request("GET", "/admin/router", ADMIN))
    assert running.reload(running.file.read_text(), ADMIN).status == 200
    for text in (shown, running.server.log()):
        for secret in ("a-token", "a-wrong-secret", "backend-secret", account("a")["token_hash"][7:]):
            assert secret not in text


def test_another_account_in_the_path_is_refused(router, upstream):
    running = router(model("m", endpoint(upstream.url)), accounts=(account("a"), account("b")))
    path = "/client/v4/accounts/{}/ai/run/m"
    assert running.request("POST", path.format("a"), "a-token", json={"prompt": "x"}).status == 200
    reply = running.request("POST", path.format("b"), "a-token", json={"prompt": "x"})
    assert (reply.status, reply.json["success"]) == (403, False)
    assert upstream.n_requests == 1
    for list_of_models in ("models/search", "v1/models"):
        path = f"/client/v4/accounts/b/ai/{list_of_models}"
        assert running.request("GET", path, "b-token").status == 200
        assert running.request("GET", path, "a-token").status == 403


def test_only_operators_may_operate(router, upstream):
    running = router(model("m", endpoint(upstream.url)), accounts=(OPERATOR, account("a")))
    for method, path in (
        ("GET", "/admin/router"),
        ("POST", "/admin/router/reload"),
        ("POST", "/admin/router/drain"),
    ):
        assert running.request(method, path).status == 401
        assert running.request(method, path, "a-token").status == 403
    assert running.request("GET", "/admin/router", ADMIN).status == 200


def test_the_rate_of_one_account_does_not_touch_another(router, upstream):
    running = router(model("m", endpoint(upstream.url)), accounts=(account("a", rate="5/min"), account("b")))
    statuses = [running.chat(token="a-token").status for _ in range(8)]
    assert statuses == [200] * 5 + [429] * 3
    assert [running.chat(token="b-token").status for _ in range(8)] == [200] * 8
    refused = running.chat(token="a-token")
    assert refused.json["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    run = running.request("POST", "/client/v4/accounts/a/ai/run/m", "a-token", json={"prompt": "x"})
    assert (run.status, run.json["errors"][0]["code"]) == (429, 3036)
    assert upstream.n_requests == 13


def test_the_concurrency_of_one_account_does_not_touch_another(router, upstream):
    upstream.answer = hold
    running = router(
        model("m", endpoint(upstream.url)), accounts=(account("a", max_concurrent=2), account("b"))
    )
    first = [running.chat_in_background(str(number), token="a-token") for number in range(2)]
    upstream.wait_for_requests(2)
    run = running.request("POST", "/client/v4/accounts/a/ai/run/m", "a-token", json={"prompt": "x"})
    assert (run.status, run.json["errors"][0]["code"]) == (429, 3036)
    other = running.chat_in_background("other", token="b-token")
    upstream.wait_for_requests(3)
    upstream.release(3)
    assert [request.reply().status for request in (*first, other)] == [200] * 3
    upstream.release()
    assert running.chat(token="a-token").status == 200


def test_a_client_that_leaves_frees_its_place_in_the_limit(router, upstream):
    upstream.answer = hold
    running = router(model("m", endpoint(upstream.url)), accounts=(OPERATOR, account("a", max_concurrent=1)))
    connection = running.open_chat(token="a-token")
    upstream.wait_for_requests(1)
    assert running.chat(token="a-token").status == 429
    connection.close()
    running.wait_used_permits(0, token=ADMIN)
    upstream.answer = answer_chat
    wait_until(lambda: running.chat(token="a-token").status == 200, "a free place in the limit")


def test_higher_priorities_are_served_first_and_lower_ones_are_not_starved(router, upstream):
    upstream.answer = hold
    running = router(
        model("m", endpoint(upstream.url, permits=1), queue={"capacity": 40, "algorithm": "fifo"}),
        accounts=(OPERATOR, account("l", priority="low"), account("h", priority="high")),
    )
    sent = [running.chat_in_background("first", token=ADMIN)]
    upstream.wait_for_requests(1)
    for size, text in enumerate(["l0", "l1", *(f"h{number}" for number in range(12))], start=1):
        sent.append(running.chat_in_background(text, token=f"{text[0]}-token"))
        running.wait_queue_size(size, token=ADMIN)
    for number in range(len(sent)):
        upstream.wait_for_requests(number + 1)
        upstream.release()
    assert [request.reply().status for request in sent] == [200] * len(sent)
    order = upstream.texts[1:]
    assert order[:4] == ["h0", "h1", "h2", "h3"]
    assert order.index("l0") < order.index("h11"), "the lower class is not starved"
    assert order.index("l0") < order.index("l1")


def test_a_removed_token_stops_working(router, upstream):
    models = (model("m", endpoint(upstream.url)),)
    running = router(*models, accounts=(OPERATOR, account("a")))
    assert running.chat(token="a-token").status == 200
    assert running.reload(fleet_toml(*models, accounts=(OPERATOR,)), ADMIN).status == 200
    assert running.chat(token="a-token").status == 401


def test_limits_change_with_the_configuration(router, upstream):
    models = (model("m", endpoint(upstream.url)),)
    running = router(*models, accounts=(OPERATOR, account("a", rate="1/min")))
    assert [running.chat(token="a-token").status for _ in range(2)] == [200, 429]
    text = fleet_toml(*models, accounts=(OPERATOR, account("a")))
    assert running.reload(text, ADMIN).status == 200
    assert [running.chat(token="a-token").status for _ in range(4)] == [200] * 4


def test_without_accounts_the_router_listens_on_loopback_only(router, upstream, tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text(fleet_toml(model("m", endpoint(upstream.url))))
    done = subprocess.run(
        [str(tidegate_bin()), "--config", str(file), "router", "--host", "0.0.0.0", "--port", "0"],
        env=tidegate_env(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 64
    assert "--allow-anonymous" in done.stderr

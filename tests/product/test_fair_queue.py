"""The fair queue: accounts take turns, each in order of submission."""

from waiting import wait_until

ALICE, BOB, CAROL = "alice-0123456789abcdef", "bob-fedcba9876543210", "carol-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob,{CAROL}:carol"}


def as_account(token):
    return {"Authorization": f"Bearer {token}", "Prefer": "respond-async"}


def test_a_flood_of_one_account_does_not_delay_the_others(start_server, gate):
    server = start_server("echo", "--queue", "30", env=TOKENS)

    def send(token, name, **input):
        reply = server.post(
            "/predictions", {"id": name, "input": {"text": name, **input}}, headers=as_account(token)
        )
        assert reply.status == 202, str(reply)

    def shown(token, name):
        return server.get(f"/predictions/{name}", headers=as_account(token)).json

    send(ALICE, "first", gate=str(gate))
    wait_until(lambda: shown(ALICE, "first")["status"] == "processing", "the model to be held")
    jobs = [(ALICE, f"a{number:02}") for number in range(30)]
    jobs += [(BOB, "b0"), (BOB, "b1"), (CAROL, "c0"), (CAROL, "c1")]
    for token, name in jobs:
        send(token, name)
    # The queue of one account is full, those of the others are not.
    full = server.post("/predictions", {"input": {}}, headers=as_account(ALICE))
    assert full.status == 409
    gate.open()
    wait_until(lambda: all(shown(*job)["status"] == "succeeded" for job in jobs), "all to be served")

    order = [name for _, name in sorted(jobs, key=lambda job: shown(*job)["started_at"])]
    assert [name for name in order if name[0] == "a"] == [f"a{number:02}" for number in range(30)]
    places = [order.index(name) for name in ("b0", "c0", "b1", "c1")]
    assert places == sorted(places)
    assert places[-1] <= 6, order

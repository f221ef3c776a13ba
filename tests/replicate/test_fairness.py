"""A batch of one account does not block the others, also after a kill."""

from datetime import datetime

import pytest
from waiting import wait_until

ACCOUNTS = {name: f"{name}-0123456789abcdef" for name in ("ann", "bob", "cat", "dan")}
TOKENS = {"TIDEGATE_API_TOKENS": ",".join(f"{token}:{name}" for name, token in ACCOUNTS.items())}


def create(served, account, text, **input):
    headers = {"Authorization": f"Bearer {ACCOUNTS[account]}"}
    body = {"input": {"text": text, **input}}
    reply = served.server.post(f"/v1/models/{served.model}/predictions", body, headers=headers)
    assert reply.status == 201, str(reply)
    return account, reply.json["id"]


def show(served, job):
    account, id = job
    headers = {"Authorization": f"Bearer {ACCOUNTS[account]}"}
    return served.server.get(f"/v1/predictions/{id}", headers=headers).json


@pytest.mark.parametrize("killed", [False, True], ids=["at once", "after a kill"])
def test_two_hundred_predictions_of_one_account_do_not_delay_another(serve_model, tmp_path, killed):
    server, gate = serve_model("echo", env=TOKENS, token=ACCOUNTS["ann"]), tmp_path / "gate"
    held = create(server, "ann", "held", gate=str(gate))
    wait_until(lambda: show(server, held)["status"] == "processing", "the model to be held")
    batch = [create(server, "ann", f"a{n}") for n in range(200)]
    others = [create(server, account, f"{account}{n}") for n in range(4) for account in ("bob", "cat", "dan")]
    if killed:
        server.kill()
        server = serve_model("echo", env=TOKENS, token=ACCOUNTS["ann"], until=("READY", "BUSY"))
    gate.touch()
    jobs = batch + others
    wait_until(
        lambda: all(show(server, job)["status"] == "succeeded" for job in (jobs[-1], batch[-1])),
        "all to be served",
        timeout=60,
    )
    begins = {job: datetime.fromisoformat(show(server, job)["started_at"]) for job in jobs}
    order = sorted(jobs, key=begins.__getitem__)
    assert [job for job in order if job[0] == "ann"] == batch
    # Four turns of four accounts, and the one that was there first.
    assert max(order.index(job) for job in others) <= 20, [account for account, _ in order[:30]]

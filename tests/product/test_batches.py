"""Predictions of all clients share calls of `predict_batch`."""

import os
import signal

import pytest
from processes import descendants
from waiting import wait_until

ALICE, BOB, OPS = "alice-0123456789abcdef", "bob-fedcba9876543210", "ops-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob,{OPS}:ops:admin"}


class Journal:
    """The calls of the model, each as the list of its texts."""

    def __init__(self, path):
        self._path = path
        self.env = {"JOURNAL": str(path)}

    def calls(self):
        return [line.split() for line in self._path.read_text().splitlines()]


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal"
    path.touch()

    return Journal(path)


def hold(server, journal, gate, name="held", **options):
    """Start a prediction that keeps the model busy until the gate is open."""
    server.start({"text": name, "gate": str(gate), **options.pop("input", {})}, id=name, **options)
    wait_until(lambda: [name] in journal.calls(), f"{name} to run")


def waiting(server, headers=None):
    """The number of predictions that wait for a batch."""
    lines = server.get("/metrics", headers=headers or {}).body.decode().splitlines()
    (gauge,) = [line for line in lines if line.startswith("tidegate_batch_waiting{")]
    return float(gauge.split()[-1])


def join(server, name, **input):
    """Start a prediction and wait until it waits for its batch."""
    before = waiting(server)
    server.start({"text": name, **input}, id=name)
    wait_until(lambda: waiting(server) == before + 1, f"{name} to wait for a batch")


def end(server, name):
    def ended():
        reply = server.get(f"/predictions/{name}").json
        return reply if reply["status"] in ("succeeded", "failed", "canceled") else None

    return wait_until(ended, f"{name} to end")


def test_predictions_that_wait_share_a_call(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    names = ["a", "b", "c", "d"]
    for name in names:
        join(server, name)
    gate.open()
    assert [end(server, name)["output"] for name in names] == [f"{name} of 4" for name in names]
    assert journal.calls() == [["held"], names]
    assert end(server, "a")["logs"] == "in a\n"


def test_a_client_alone_does_not_wait(start_server, journal):
    server = start_server("batches", "--batch-wait", "30s", env=journal.env)
    for number in range(3):
        assert server.predict({"text": f"t{number}"}).json["output"] == f"t{number} of 1"
    assert journal.calls() == [["t0"], ["t1"], ["t2"]]


def test_the_calls_are_counted_by_size(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b", "c"):
        join(server, name)
    gate.open()
    end(server, "c")
    metrics = server.get("/metrics").body.decode()
    (total,) = [line for line in metrics.splitlines() if line.startswith("tidegate_batch_size_sum")]
    assert float(total.split()[-1]) == 4
    (count,) = [line for line in metrics.splitlines() if line.startswith("tidegate_batch_size_count")]
    assert count.split()[-1] == "2"


def test_one_batch_runs_and_one_forms(start_server, journal, gate):
    server = start_server("batches", "--batch-size", "2", env=journal.env)
    hold(server, journal, gate)
    # Four items in a message that the process sorts, and two that wait: the running prediction is one.
    for name in ("a", "b", "c", "d", "e"):
        join(server, name)
    assert server.health()["status"] == "BUSY"
    assert server.post("/predictions", {"input": {}}).status == 409
    gate.open()
    for name in ("a", "b", "c", "d", "e"):
        assert end(server, name)["status"] == "succeeded"
    assert journal.calls() == [["held"], ["a", "b"], ["c", "d"], ["e"]]


def test_more_predictions_wait_in_the_queue(start_server, journal, gate):
    server = start_server("batches", "--batch-size", "2", "--queue", "10", env=journal.env)
    hold(server, journal, gate)
    names = [f"n{number}" for number in range(9)]
    for name in names:
        server.start({"text": name}, id=name)
    gate.open()
    for name in names:
        assert end(server, name)["status"] == "succeeded"
    ran = [name for call in journal.calls() for name in call]
    assert sorted(ran) == ["held", *names]
    assert max(map(len, journal.calls())) == 2


def test_accounts_and_apis_share_a_call(start_server, journal, gate):
    server = start_server("batches", env=journal.env | TOKENS)

    def headers(account):
        token = {"alice": ALICE, "bob": BOB, "ops": OPS}[account]
        return {"Authorization": f"Bearer {token}"}

    def start(account, text, gate=""):
        reply = server.post(
            "/predictions",
            {"id": text, "input": {"text": text, "gate": str(gate)}},
            headers=headers(account) | {"Prefer": "respond-async"},
        )
        assert reply.status == 202, str(reply)

    def wait_for_items(number):
        wait_until(lambda: waiting(server, headers("ops")) == number, f"{number} items to wait")

    start("alice", "held", gate)
    wait_until(lambda: journal.calls() == [["held"]], "the model to be busy")
    start("alice", "a")
    wait_for_items(1)
    start("bob", "b")
    wait_for_items(2)
    version = server.get("/v1/models", headers=headers("bob")).json["results"][0]["latest_version"]["id"]
    reply = server.post(
        "/v1/predictions", {"version": version, "input": {"text": "c"}}, headers=headers("bob")
    )
    assert reply.status == 201, str(reply)
    wait_for_items(3)
    gate.open()

    def logs_of(account, name):
        return server.get(f"/predictions/{name}", headers=headers(account)).json["logs"]

    wait_until(lambda: journal.calls() == [["held"], ["a", "b", "c"]], "one call for all three")
    wait_until(lambda: logs_of("bob", "b") == "in b\n", "the log of its own item only")
    assert server.get("/predictions/a", headers=headers("bob")).status == 404


def test_an_error_fails_its_item_only(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b", "c"):
        join(server, name, how="error" if name == "b" else "")
    gate.open()
    assert end(server, "b")["error"] == "Prediction failed: ValueError: asked for it"
    assert (end(server, "a")["output"], end(server, "c")["output"]) == ("a of 3", "c of 3")


def test_after_a_raise_each_item_runs_alone(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b", "c"):
        join(server, name, how="raise" if name == "b" else "")
    gate.open()
    assert end(server, "b")["error"] == "Prediction failed: ValueError: asked for it"
    assert (end(server, "a")["output"], end(server, "c")["output"]) == ("a of 1", "c of 1")
    assert journal.calls()[1:] == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_after_a_crash_each_item_runs_alone(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b", "c"):
        join(server, name, how="exit" if name == "b" else "")
    gate.open()
    assert end(server, "b")["error"] == "Worker crashed"
    assert (end(server, "a")["output"], end(server, "c")["output"]) == ("a of 1", "c of 1")
    assert journal.calls()[1:] == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    server.wait_health("READY")
    assert server.predict({"text": "next"}).json["output"] == "next of 1"


def test_items_that_wait_survive_the_death_of_the_process(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b"):
        join(server, name)
    for pid in descendants(server.process.pid):
        os.kill(pid, signal.SIGKILL)
    assert end(server, "held")["error"].startswith("Worker crashed")
    assert [end(server, name)["output"] for name in ("a", "b")] == ["a of 2", "b of 2"]


def test_a_canceled_item_is_answered_while_its_batch_runs(start_server, journal, gate, gates):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b"):
        join(server, name, gate=str(gates[1]))
    gate.open()
    wait_until(lambda: ["a", "b"] in journal.calls(), "the batch to run")
    assert server.cancel("a").status == 200
    assert end(server, "a")["status"] == "canceled"
    assert server.snapshot("b")["status"] == "processing"
    gates[1].open()
    assert end(server, "b")["output"] == "b of 2", "the call was not interrupted"


def test_an_item_that_waits_can_be_canceled(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in ("a", "b"):
        join(server, name)
    assert server.cancel("a").status == 200
    assert end(server, "a")["status"] == "canceled"
    gate.open()
    assert end(server, "b")["output"] == "b of 1"


def test_the_call_is_interrupted_when_nobody_waits(start_server, journal, gates):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gates[0])
    pid = descendants(server.process.pid)
    server.cancel("held")
    assert end(server, "held")["status"] == "canceled"
    assert server.predict({"text": "next"}).json["output"] == "next of 1"
    assert descendants(server.process.pid) == pid, "the process was not replaced"


def test_a_batch_that_does_not_stop_is_killed(start_server, journal, gates):
    server = start_server("batches", "--cancel-grace", "100ms", env=journal.env)
    hold(server, journal, gates[0], input={"how": "stubborn"})
    server.cancel("held")
    assert end(server, "held")["status"] == "canceled"
    assert server.predict({"text": "next"}).json["output"] == "next of 1"


def test_a_timeout_ends_its_item_only(start_server, journal, gate, gates):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    server.start({"text": "a", "gate": str(gates[1])}, id="a", headers={"Cancel-After": "1s"})
    wait_until(lambda: waiting(server) == 1, "a to wait for a batch")
    join(server, "b")
    gate.open()
    assert end(server, "a")["status"] in ("failed", "canceled")
    gates[1].open()
    assert end(server, "b")["output"] == "b of 2"


def test_files_in_and_out(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    join(server, "a", image="data:text/plain;base64,aGVsbG8=")
    join(server, "b", how="file")
    gate.open()
    assert end(server, "a")["output"] == "a 5"
    assert end(server, "b")["output"] == "data:text/plain;base64,Yg=="
    assert journal.calls()[1:] == [["a", "b"]]


def test_every_process_takes_batches(start_server, journal, gates):
    server = start_server("batches", "--workers", "2", env=journal.env)
    hold(server, journal, gates[0], "one")
    hold(server, journal, gates[1], "two")
    server.start({"text": "next"}, id="next")
    gates[1].open()
    assert end(server, "next")["status"] == "succeeded", "the second process is free"
    gates[0].open()
    assert end(server, "one")["status"] == "succeeded"


def test_accepted_jobs_survive_a_killed_server(start_server, journal, gate, tmp_path):
    env = {**journal.env, "TIDEGATE_DATA_DIR": str(tmp_path / "data")}
    server = start_server("batches", env=env)
    hold(server, journal, gate)
    names = ["held", "a", "b", "c"]
    for name in names[1:]:
        server.start({"text": name}, id=name)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    gate.open()
    server = start_server("batches", env=env)
    for name in names:
        assert end(server, name)["status"] == "succeeded"


def test_a_drain_finishes_the_running_and_the_forming_batch(start_server, journal, gate, receiver):
    server = start_server("batches", env=journal.env)
    hooks = {name: receiver.path() for name in ("held", "a", "b")}
    hold(server, journal, gate, webhook=receiver.url + hooks["held"])
    for name in ("a", "b"):
        server.start({"text": name}, id=name, webhook=receiver.url + hooks[name])
    server.signal(signal.SIGTERM)
    wait_until(lambda: server.refuses_connections(), "the listener to close")
    gate.open()
    ends = {name: receiver.wait_terminal(hook) for name, hook in hooks.items()}
    assert {name: body["status"] for name, body in ends.items()} == dict.fromkeys(hooks, "succeeded")
    assert server.wait_exit() == 0


def test_a_drain_that_takes_too_long_ends_every_item(start_server, journal, gate, receiver):
    server = start_server("batches", "--drain-timeout", "1s", env=journal.env)
    hooks = {name: receiver.path() for name in ("held", "a")}
    hold(server, journal, gate, webhook=receiver.url + hooks["held"], input={"how": "stubborn"})
    server.start({"text": "a"}, id="a", webhook=receiver.url + hooks["a"])
    server.signal(signal.SIGTERM)
    ends = {name: receiver.wait_terminal(hook)["status"] for name, hook in hooks.items()}
    assert ends["held"] != "succeeded"
    assert ends["a"] != "succeeded"
    server.wait_exit()


def test_a_process_that_is_not_replaced_ends_every_item(start_server, journal, gate):
    server = start_server("batches", "--no-respawn", env=journal.env)
    hold(server, journal, gate)
    join(server, "a")
    for pid in descendants(server.process.pid):
        os.kill(pid, signal.SIGKILL)
    assert end(server, "held")["error"].startswith("Worker crashed")
    assert end(server, "a")["error"].startswith("Worker crashed")
    assert server.health()["status"] == "DEFUNCT"


def test_a_call_that_does_not_stop_does_not_block_the_other_calls(start_server, journal, gate, gates):
    server = start_server("batches", "--cancel-grace", "100ms", env=journal.env)
    hold(server, journal, gate)
    join(server, "a", group="1", gate=str(gates[1]), how="stubborn")
    join(server, "b", group="2")
    gate.open()
    wait_until(lambda: ["a"] in journal.calls(), "the first call of the message")
    server.cancel("a")
    assert end(server, "a")["status"] == "canceled"
    assert end(server, "b")["output"] == "b of 1"


def test_a_large_input_survives_a_crash_of_its_batch(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    join(server, "a", padding="x" * 7_000_000)
    join(server, "b", how="exit")
    gate.open()
    assert end(server, "a")["output"] == "a of 1"
    assert end(server, "b")["error"] == "Worker crashed"


def test_a_canceled_item_keeps_its_files_until_its_batch_ends(start_server, journal, gate, gates):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    image = "data:text/plain;base64,aGVsbG8="
    join(server, "a", gate=str(gates[1]), image=image)
    join(server, "b", image=image)
    gate.open()
    wait_until(lambda: ["a", "b"] in journal.calls(), "the batch to run")
    server.cancel("a")
    assert end(server, "a")["status"] == "canceled"
    gates[1].open()
    assert end(server, "b")["output"] == "b 5"
    assert journal.calls() == [["held"], ["a", "b"]], "the call did not fail"


@pytest.fixture(params=["batches", "batches_async"])
def ahead(start_server, journal, gate, request):
    """A server whose model is busy and has received the full batch of a, b, c and d ahead."""
    server = start_server(request.param, "--cancel-grace", "200ms", env=journal.env)
    hold(server, journal, gate)
    for name in "abcd":
        join(server, name)
    return server


NEXT = list("abcd")


def kill_children(server):
    for pid in descendants(server.process.pid):
        os.kill(pid, signal.SIGKILL)


def test_the_next_full_batch_starts_without_the_server(ahead, journal, gate):
    os.kill(ahead.process.pid, signal.SIGSTOP)
    try:
        gate.open()
        wait_until(lambda: journal.calls() == [["held"], NEXT], "the next batch to run")
    finally:
        os.kill(ahead.process.pid, signal.SIGCONT)
    assert [end(ahead, name)["output"] for name in ["held", *NEXT]] == [
        "held of 1",
        *(f"{name} of 4" for name in NEXT),
    ]


def test_a_death_does_not_count_for_the_batch_that_was_sent_ahead(ahead, journal):
    kill_children(ahead)
    assert end(ahead, "held")["error"].startswith("Worker crashed")
    assert [end(ahead, name)["output"] for name in NEXT] == [f"{name} of 4" for name in NEXT]
    assert journal.calls() == [["held"], NEXT]


def test_an_item_that_was_sent_ahead_can_be_canceled(ahead, journal, gate):
    assert ahead.cancel("b").status == 200
    assert end(ahead, "b")["status"] == "canceled"
    assert waiting(ahead) == 3
    gate.open()
    assert [end(ahead, name)["output"] for name in "acd"] == [f"{name} of 3" for name in "acd"]
    assert journal.calls() == [["held"], ["a", "c", "d"]]


def test_a_batch_that_was_sent_ahead_can_be_canceled(ahead, journal, gate):
    pid = descendants(ahead.process.pid)
    for name in NEXT:
        assert ahead.cancel(name).status == 200
        assert end(ahead, name)["status"] == "canceled"
    gate.open()
    assert end(ahead, "held")["output"] == "held of 1"
    assert ahead.predict({"text": "next"}).json["output"] == "next of 1"
    assert journal.calls() == [["held"], ["next"]]
    assert descendants(ahead.process.pid) == pid, "the process was not replaced"


def test_the_cancel_of_a_call_does_not_interrupt_the_next(ahead, journal):
    pid = descendants(ahead.process.pid)
    ahead.cancel("held")
    assert end(ahead, "held")["status"] == "canceled"
    assert [end(ahead, name)["output"] for name in NEXT] == [f"{name} of 4" for name in NEXT]
    assert journal.calls() == [["held"], NEXT]
    assert descendants(ahead.process.pid) == pid, "the process was not replaced"


@pytest.mark.parametrize("model", ["batches", "batches_async"])
def test_a_call_that_does_not_stop_gives_the_next_batch_back(start_server, journal, gate, model):
    server = start_server(model, "--cancel-grace", "100ms", env=journal.env)
    hold(server, journal, gate, input={"how": "stubborn"})
    for name in NEXT:
        join(server, name)
    server.cancel("held")
    assert [end(server, name)["output"] for name in NEXT] == [f"{name} of 4" for name in NEXT]


def test_a_death_between_two_batches_does_not_count(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate, input={"how": "exit after"})
    for name in NEXT:
        join(server, name)
    gate.open()
    assert end(server, "held")["output"] == "held of 1"
    assert [end(server, name)["output"] for name in NEXT] == [f"{name} of 4" for name in NEXT]


def test_a_batch_that_was_sent_ahead_and_kills_its_process_runs_each_item_alone(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate)
    for name in NEXT:
        join(server, name, how="exit" if name == "b" else "")
    gate.open()
    assert end(server, "b")["error"] == "Worker crashed"
    assert [end(server, name)["output"] for name in "acd"] == [f"{name} of 1" for name in "acd"]
    assert journal.calls() == [["held"], NEXT, ["a"], ["b"], ["c"], ["d"]]


def test_a_drain_finishes_a_batch_that_was_sent_ahead(ahead, journal, gate):
    ahead.signal(signal.SIGTERM)
    wait_until(lambda: ahead.refuses_connections(), "the listener to close")
    gate.open()
    assert ahead.wait_exit() == 0
    assert journal.calls() == [["held"], NEXT]


def test_a_large_batch_is_sent_ahead_while_the_running_call_prints(start_server, journal, gate):
    server = start_server("batches", env=journal.env)
    hold(server, journal, gate, input={"how": "talkative"})
    for name in NEXT:
        join(server, name, padding="x" * 500_000)
    gate.open()
    assert [end(server, name)["output"] for name in NEXT] == [f"{name} of 4" for name in NEXT]
    assert len(end(server, "held")["logs"]) > 1_000_000


def test_options_need_a_model_that_batches(start_server):
    server = start_server("echo", "--batch-size", "4", until=("SETUP_FAILED",))
    health = server.wait_health("SETUP_FAILED")
    assert "need a method `predict_batch(self, items)`" in health["setup"]["logs"]

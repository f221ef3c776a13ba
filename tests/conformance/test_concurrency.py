"""spec/cog.md §5: slots."""

from waiting import wait_until


def test_four_run_at_once_and_the_fifth_is_refused(serve, gate):
    server = serve("concurrent")
    for number in range(4):
        assert server.health()["status"] == "READY"
        assert server.start({"gate": str(gate), "text": f"t{number}"}, id=f"c{number}").status == 202
    assert server.health()["status"] == "BUSY"
    assert server.post("/predictions", {"input": {}}).status == 409
    gate.open()
    server.wait_idle()
    assert server.predict({"text": "after"}).json["output"]["text"] == "after"


def test_logs_metrics_and_context_stay_apart(serve, gates, receiver):
    server = serve("concurrent")
    hooks = [receiver.path() for _ in range(3)]
    for number, hook in enumerate(hooks):
        server.start(
            {"gate": str(gates[number]), "text": "x" * (number + 1)},
            id=f"apart{number}",
            context={"who": str(number)},
            webhook=receiver.url + hook,
        )
    for number in range(3):
        wait_until(lambda number=number: server.snapshot(f"apart{number}")["logs"], "all to begin")
    for gate in reversed(gates):
        gate.open()
    for number, hook in enumerate(hooks):
        body = receiver.wait_terminal(hook)
        text = "x" * (number + 1)
        assert body["logs"] == f"begin {text}\nend {text}\n"
        assert body["metrics"]["letters"] == number + 1
        assert body["output"] == {"text": text, "context": {"who": str(number)}, "same_loop": True}


def test_setup_and_predict_share_the_loop(serve):
    assert serve("concurrent").predict().json["output"]["same_loop"] is True


def test_context_is_empty_by_default(serve):
    assert serve("concurrent").predict().json["output"]["context"] == {}


def test_sync_predict_runs_in_the_main_thread(serve):
    server = serve("main_thread")
    body = server.predict().json
    # Deliberate difference: on Cog signal.signal() raises, because predict runs in another thread.
    assert (body["status"], body.get("output")) == (
        ("failed", None) if server.is_cog else ("succeeded", True)
    )

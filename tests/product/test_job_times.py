"""How long a prediction waits and runs: `predict_time`, `queue_time`, `load_time` in its metrics."""

from datetime import datetime

import pytest
from waiting import wait_until


def seconds(body, begin, end):
    return (datetime.fromisoformat(body[end]) - datetime.fromisoformat(body[begin])).total_seconds()


def over(server, id):
    """The prediction after its end."""
    return wait_until(
        lambda: (lambda body: body if "completed_at" in body else None)(
            server.get(f"/predictions/{id}").json
        ),
        f"{id} to end",
    )


@pytest.mark.parametrize("data_dir", ["none", "data"])
def test_the_time_in_the_queue_is_a_metric_of_its_own(start_server, tmp_path, gate, data_dir):
    folder = data_dir if data_dir == "none" else str(tmp_path)
    server = start_server("echo", "--queue", "5", env={"TIDEGATE_DATA_DIR": folder})
    server.start({"gate": str(gate)}, id="first")
    server.start(id="second")
    wait_until(lambda: server.get("/predictions/first").json["status"] == "processing", "the first to run")
    gate.open()
    first, second = over(server, "first"), over(server, "second")
    assert "queue_time" not in first["metrics"], "it did not wait"
    metrics = second["metrics"]
    # Timestamps have microseconds.
    assert metrics["queue_time"] <= seconds(second, "created_at", "started_at") + 1e-5
    # It waited at least until the model ended the first one.
    until_begin = seconds({"from": second["created_at"], "to": first["started_at"]}, "from", "to")
    assert metrics["queue_time"] >= until_begin + first["metrics"]["predict_time"] - 1e-5
    assert 0 < metrics["predict_time"] <= seconds(second, "started_at", "completed_at") + 1e-5
    assert "load_time" not in metrics
    if data_dir != "none":
        server.stop()
        server = start_server("echo", env={"TIDEGATE_DATA_DIR": folder})
        assert server.get("/predictions/second").json["metrics"] == metrics


def test_a_job_that_is_canceled_in_the_queue_has_waited(start_server, gate):
    server = start_server("echo", "--queue", "5")
    server.start({"gate": str(gate)}, id="first")
    server.start(id="second")
    wait_until(lambda: server.get("/predictions/first").json["status"] == "processing", "the first to run")
    server.post("/predictions/second/cancel")
    second = over(server, "second")
    assert second["status"] == "canceled" and second["metrics"]["predict_time"] == 0
    assert 0 < second["metrics"]["queue_time"] <= seconds(second, "created_at", "completed_at") + 1e-5


def test_the_time_to_load_the_model_is_a_metric_of_its_own(start_server):
    server = start_server("echo", "--lazy")
    first, second = server.predict(id="first").json, server.predict(id="second").json
    # It did not wait for a slot, only for its admission.
    assert set(first["metrics"]) - {"queue_time"} == {"load_time", "predict_time"}
    queue_time = first["metrics"].get("queue_time", 0)
    assert queue_time == 0 or queue_time >= 0.001
    assert set(second["metrics"]) == {"predict_time"}
    body = server.get("/predictions/first").json
    waited = first["metrics"]["load_time"] + queue_time
    assert waited <= seconds(body, "created_at", "started_at") + 1e-5
    assert first["metrics"]["predict_time"] <= seconds(body, "started_at", "completed_at") + 1e-5
    assert first["metrics"]["load_time"] > first["metrics"]["predict_time"], "Python starts"


def test_a_model_may_record_metrics_of_these_names(start_server, tmp_path):
    (tmp_path / "cog.yaml").write_text("predict: predict.py:predict\n")
    (tmp_path / "predict.py").write_text(
        "from cog import current_scope\n"
        "def predict() -> str:\n"
        "    current_scope().record_metric('queue_time', 'mine')\n"
        "    return 'x'\n"
    )
    server = start_server(tmp_path, "--lazy")
    assert server.predict().json["metrics"]["queue_time"] == "mine"

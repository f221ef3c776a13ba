"""Traces of `serve`: the spans of requests and jobs, and a collector that is down."""

from __future__ import annotations

import signal
import socket

import pytest
from environment import free_port
from otlp_collector import PARENT, TRACE, traceparent
from waiting import wait_until


def test_a_prediction_has_a_span_of_its_request_and_of_the_model(start_server, collector):
    env = collector.env | {
        "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=secret",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
    }
    server = start_server("echo", env=env)
    assert server.get("/health-check").status == 200
    reply = server.predict({"text": "hi"}, headers=traceparent(), id="p1")
    assert reply.status == 200, str(reply)
    spans = collector.wait(2)
    request, predict = spans["serve", "POST /predictions"], spans["serve", "predict"]
    assert (request.kind, request.trace, request.parent) == ("server", TRACE, PARENT)
    assert request.attributes == {
        "http.request.method": "POST",
        "url.path": "/predictions",
        "http.response.status_code": 200,
    }
    assert (predict.kind, predict.trace, predict.parent) == ("internal", TRACE, request.id)
    assert predict.attributes == {
        "tidegate.job.id": "p1",
        "tidegate.model": "local/echo",
        "tidegate.api": "cog",
        "tidegate.job.status": "succeeded",
    }
    assert request.start <= predict.start <= predict.end <= request.end
    assert not request.is_error and not predict.is_error
    assert all(headers["x-api-key"] == "secret" for headers in collector.requests)


def test_a_failed_prediction_without_a_trace_starts_one_with_an_error(start_server, collector):
    server = start_server("echo", env=collector.env | {"OTEL_SERVICE_NAME": "mine"})
    assert server.predict({"fail": "no"}).json["status"] == "failed"
    spans = collector.wait(2)
    request, predict = spans["mine", "POST /predictions"], spans["mine", "predict"]
    assert (request.parent, predict.parent) == ("", request.id)
    assert request.trace == predict.trace
    assert (predict.is_error, predict.attributes["tidegate.job.status"]) == (True, "failed")


def test_the_wait_for_setup_is_a_span_in_that_of_the_queue(start_server, collector):
    server = start_server("echo", "--lazy", env=collector.env)
    assert server.predict(headers=traceparent()).status == 200
    spans = collector.wait(4, TRACE)
    request, queue = spans["serve", "POST /predictions"], spans["serve", "queue"]
    setup, predict = spans["serve", "setup"], spans["serve", "predict"]
    assert (queue.parent, predict.parent, setup.parent) == (request.id, request.id, queue.id)
    assert queue.start <= setup.start < setup.end <= queue.end <= predict.start


@pytest.mark.parametrize("data_dir", ["none", "data"])
def test_a_queued_prediction_of_replicate_keeps_its_trace(start_server, collector, tmp_path, gate, data_dir):
    folder = data_dir if data_dir == "none" else str(tmp_path / "data")
    server = start_server("echo", env=collector.env | {"TIDEGATE_DATA_DIR": folder})
    path = "/v1/models/local/echo/predictions"
    assert server.post(path, {"input": {"gate": str(gate)}}).status == 201
    reply = server.post(path, {"input": {"text": "hi"}}, headers=traceparent())
    assert reply.status == 201, str(reply)
    gate.open()
    spans = collector.wait(3, TRACE)
    request = spans["serve", "POST /v1/models/*"]
    queue, predict = spans["serve", "queue"], spans["serve", "predict"]
    assert (request.parent, queue.parent, predict.parent) == (PARENT, request.id, request.id)
    assert request.attributes["url.path"] == path
    assert {span.attributes["tidegate.job.id"] for span in (queue, predict)} == {reply.json["id"]}
    assert predict.attributes["tidegate.api"] == "replicate"
    assert queue.start <= queue.end <= predict.start
    assert predict.end > request.end, "the request did not wait for the job"


def test_a_job_of_the_previous_run_keeps_its_trace(start_server, collector, tmp_path, gate):
    env = collector.env | {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}
    server = start_server("echo", env=env)
    path = "/v1/models/local/echo/predictions"
    first = server.post(path, {"input": {"gate": str(gate)}}).json
    wait_until(lambda: server.get(f"/v1/predictions/{first['id']}").json["status"] == "processing", "a run")
    assert server.post(path, {"input": {"text": "hi"}}, headers=traceparent()).status == 201
    request = collector.wait(1, TRACE)["serve", "POST /v1/models/*"]
    server.signal(signal.SIGKILL)
    server.wait_exit()
    gate.open()
    start_server("echo", env=env)
    spans = collector.wait(4, TRACE)
    assert (spans["serve", "queue"].parent, spans["serve", "predict"].parent) == (request.id, request.id)
    assert spans["serve", "setup"].parent == spans["serve", "queue"].id, "the new server loads the model"


def test_an_unsampled_trace_is_not_exported(start_server, collector):
    server = start_server("echo", env=collector.env)
    assert server.predict(headers=traceparent("00")).status == 200
    assert server.predict({"text": "later"}).status == 200
    spans = collector.wait(2)
    assert TRACE not in {span.trace for span in spans.values()}


def test_the_sampler_of_the_environment_decides(start_server, collector):
    server = start_server("echo", env=collector.env | {"OTEL_TRACES_SAMPLER": "parentbased_always_off"})
    assert server.predict().status == 200
    assert server.predict(headers=traceparent()).status == 200
    assert {span.trace for span in collector.wait(2).values()} == {TRACE}


def test_the_last_spans_are_exported_at_shutdown(start_server, collector):
    server = start_server("echo", env=collector.env | {"OTEL_BSP_SCHEDULE_DELAY": "600000"})
    assert server.predict(headers=traceparent()).status == 200
    assert collector.spans == []
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    collector.wait(2, TRACE)


def test_a_collector_that_is_down_does_not_affect_requests(start_server):
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
        "OTEL_BSP_MAX_QUEUE_SIZE": "4",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
    }
    server = start_server("echo", env=env)
    assert [server.predict().status for _ in range(30)] == [200] * 30
    wait_until(lambda: "dropping spans" in server.log(), "a warning")
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    log = server.log()
    assert log.count("dropping spans") == 1
    (total,) = [line for line in log.splitlines() if "spans did not reach the collector" in line]
    assert int(total.rpartition("dropped=")[2]) > 0


def test_a_collector_that_does_not_answer_delays_the_exit_by_seconds_only(start_server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "10"}
        server = start_server("echo", env=env)
        assert [server.predict().status for _ in range(10)] == [200] * 10
        server.signal(signal.SIGTERM)
        assert server.wait_exit(timeout=9) == 0, "the limit of a request is 10 seconds"
    assert "failed to export the last spans in time" in server.log()


def test_without_a_collector_nothing_is_exported(start_server, collector):
    for env in ({}, collector.env | {"OTEL_SDK_DISABLED": "true"}):
        server = start_server("echo", env=env)
        assert server.predict(headers=traceparent()).status == 200
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        assert "exporting traces" not in server.log()
    assert collector.requests == []


def test_a_protocol_that_is_not_supported_is_an_error(tidegate, collector):
    env = collector.env | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    done = tidegate("serve", ".", env=env)
    assert done.returncode == 64
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported" in done.stderr

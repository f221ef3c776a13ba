"""One trace over a cluster: the request on the API, and the job on a director."""

from __future__ import annotations

import requests
from cluster import Cluster
from otlp_collector import PARENT, TRACE, Collector, traceparent


def test_the_job_of_a_director_is_in_the_trace_of_its_request(new_cluster: Cluster, collector: Collector):
    api = new_cluster.start_api(env=collector.env)
    new_cluster.start_director("echo", env=collector.env)
    new_cluster.wait_for_model("local/echo")
    reply = requests.post(
        f"{api.url}/v1/models/local/echo/predictions",
        json={"input": {"text": "hi"}},
        headers=traceparent(),
        timeout=20,
    )
    assert reply.status_code == 201, reply.text
    spans = collector.wait(3, TRACE)
    request = spans["api", "POST /v1/models/*"]
    queue, predict = spans["director", "queue"], spans["director", "predict"]
    assert (request.parent, queue.parent, predict.parent) == (PARENT, request.id, request.id)
    assert predict.attributes["tidegate.job.id"] == reply.json()["id"]
    assert predict.attributes["tidegate.job.status"] == "succeeded"
    assert {span.trace for span in collector.spans} == {TRACE}, "calls between the processes have no spans"

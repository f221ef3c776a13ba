"""Progress that both clients can read, and the details of errors."""

import pytest
from clients import ServedModel

PROBLEM = "application/problem+json"
#: What tqdm writes: each state goes back to the begin of the line.
BAR = "\r  0%|          | 0/10 [00:00<?]\r 50%|#####     | 5/10 [00:01]\r100%|##########| 10/10 [00:02]"


def test_both_clients_read_the_latest_progress_of_a_progress_bar(serve_model: ServedModel):
    echo = serve_model("echo")
    made = echo.python.models.predictions.create(echo.model, input={"log": BAR})
    made.wait()
    assert made.progress is not None
    assert (made.progress.percentage, made.progress.current, made.progress.total) == (1.0, 10, 10)
    assert echo.npm("progress", id=made.id) == {"percentage": 1, "current": 10, "total": 10}
    assert "\r" not in made.logs


@pytest.mark.parametrize(
    "path", ["/v1/predictions/%ff", "/v1/models/local/%c3", "/v1/streams/%80", "/v1/%fe/x"]
)
def test_a_path_that_is_not_utf8_is_a_problem_response(serve_model, path):
    reply = serve_model("echo").server.request("GET", path)
    assert (reply.status, reply.content_type, reply.json["status"]) == (400, PROBLEM, 400)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("webhook", 5),
        ("webhook_completed", ["x"]),
        ("webhook_events_filter", "completed"),
        ("webhook_events_filter", ["completed", "bogus"]),
        ("stream", "yes"),
    ],
)
def test_an_invalid_field_is_named(serve_model, field, value):
    reply = serve_model("echo").create({"text": "é\n"}, **{field: value})
    assert (reply.status, reply.content_type) == (422, PROBLEM)
    [wrong] = reply.json["invalid_fields"]
    assert wrong["field"] == field
    assert reply.json["detail"] == f"- {field}: {wrong['description']}\n"


def test_invalid_fields_of_other_requests_are_named(serve_model):
    echo = serve_model("echo")
    body = {"version": 7, "input": {}}
    assert echo.server.post("/v1/predictions", body).json["invalid_fields"][0]["field"] == "version"
    deploy = {"name": "a", "model": echo.model, "version": echo.version, "hardware": "local"}
    deploy |= {"min_instances": -1, "max_instances": 1}
    reply = echo.server.post("/v1/deployments", deploy)
    assert (reply.status, reply.json["invalid_fields"][0]["field"]) == (422, "min_instances")


@pytest.mark.parametrize(
    ("input", "rule"),
    [
        ({"whole": "x"}, "invalid_type"),
        ({"bounded": 0}, "number_gte"),
        ({"bounded": 11}, "number_lte"),
        ({"short": "a"}, "string_gte"),
        ({"short": "abcdef"}, "string_lte"),
        ({"lower": "ABC"}, "pattern"),
        ({"colour": "blue"}, "enum"),
    ],
)
def test_each_violated_input_rule_is_named(serve_model, input, rule):
    reply = serve_model("inputs").create(input)
    [wrong] = reply.json["invalid_fields"]
    assert (reply.status, wrong["type"], wrong["field"]) == (422, rule, f"input.{next(iter(input))}")

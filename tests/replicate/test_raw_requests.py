"""Raw requests to the Replicate API: behaviour that the clients do not show."""

import json
import re
import time
from datetime import datetime, timedelta

import pytest
import requests
from waiting import wait_until

PROBLEM = "application/problem+json"
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


def over(served, id):
    def probe():
        prediction = served.show(id)
        return prediction if prediction["completed_at"] else None

    return wait_until(probe, "the end")


def events(text):
    """The frames of a stream as dictionaries; `data` is a list of lines."""
    frames = []
    for block in text.split("\n\n"):
        frame = {"data": []}
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            if name == "data":
                frame["data"].append(value)
            elif name:
                frame[name] = value
        if "event" in frame:
            frames.append(frame)
    return frames


def test_a_prediction_has_every_field(serve_model):
    echo = serve_model("echo")
    reply = echo.create({"text": "x", "log": "said"})
    assert (reply.status, reply.content_type) == (201, "application/json")
    seen = over(echo, reply.json["id"])
    assert list(seen) == [
        "id",
        "model",
        "version",
        "input",
        "logs",
        "output",
        "data_removed",
        "error",
        "source",
        "status",
        "created_at",
        "started_at",
        "completed_at",
        "urls",
        "metrics",
    ]
    assert re.fullmatch("[0-9a-z]{26}", seen["id"])
    assert re.fullmatch("[0-9a-f]{64}", seen["version"])
    assert (seen["model"], seen["output"], seen["logs"]) == (echo.model, "x", "said\n")
    assert (seen["data_removed"], seen["error"], seen["source"]) == (False, None, "api")
    assert all(MOMENT.fullmatch(seen[name]) for name in ("created_at", "started_at", "completed_at"))
    at = f"{echo.server.url}/v1/predictions/{seen['id']}"
    assert seen["urls"] == {"cancel": f"{at}/cancel", "get": at}
    assert 0 <= seen["metrics"]["predict_time"] <= seen["metrics"]["total_time"]


def test_queue_time_is_not_part_of_predict_time(serve_model, tmp_path):
    echo, gate = serve_model("echo"), tmp_path / "gate"
    echo.create({"gate": str(gate)})
    waiting = echo.create({}).json["id"]
    time.sleep(0.5)
    assert echo.show(waiting)["status"] == "starting"
    gate.touch()
    metrics = over(echo, waiting)["metrics"]
    assert metrics["total_time"] - metrics["predict_time"] > 0.5


def test_links_follow_the_host_of_the_request_or_the_public_url(serve_model):
    echo = serve_model("echo", "--allow-host", "*")
    made = echo.create({}, headers={"Host": "models.example:81"}).json
    assert made["urls"]["get"] == f"http://models.example:81/v1/predictions/{made['id']}"
    strange = echo.create({}, headers={"Host": "user@evil/path?x"})
    assert strange.status == 400 or strange.json["urls"]["get"].startswith(echo.server.url)
    echo = serve_model(
        "echo", "--public-url", "https://models.example/api", env={"TIDEGATE_DATA_DIR": "none"}
    )
    made = echo.create({}).json
    assert made["urls"]["get"] == f"https://models.example/api/v1/predictions/{made['id']}"


@pytest.mark.parametrize(
    ("prefer", "applied"), [("wait", "wait=60"), ("wait=5", "wait=5"), ("wait=99", "wait=60")]
)
def test_a_waiting_client_gets_the_final_state(serve_model, prefer, applied):
    echo = serve_model("echo")
    reply = echo.create({"text": "x"}, headers={"Prefer": prefer})
    assert (reply.status, reply.headers["preference-applied"]) == (201, applied)
    assert (reply.json["status"], reply.json["output"]) == ("succeeded", "x")


def test_a_client_that_disconnects_does_not_cancel(serve_model, tmp_path):
    echo, gate = serve_model("echo"), tmp_path / "gate"
    with pytest.raises(requests.Timeout):
        echo.server.request(
            "POST",
            f"/v1/models/{echo.model}/predictions",
            json={"input": {"gate": str(gate), "text": "alone"}},
            headers={"Prefer": "wait"},
            timeout=1,
        )
    (one,) = echo.get("/v1/predictions").json["results"]
    gate.touch()
    assert over(echo, one["id"])["output"] == "alone"


def test_a_deadline_aborts_a_waiting_prediction_and_cancels_a_running_one(serve_model, tmp_path):
    echo, never = serve_model("echo", "--cancel-grace", "1s"), str(tmp_path / "never")
    running = echo.create({"gate": never}, headers={"Cancel-After": "5s"}).json
    waiting = echo.create({"gate": never}, headers={"Cancel-After": "5"}).json
    assert MOMENT.fullmatch(running["deadline"])
    created, deadline = (datetime.fromisoformat(running[name]) for name in ("created_at", "deadline"))
    assert deadline - created == timedelta(seconds=5)
    assert over(echo, running["id"])["status"] == "canceled"
    assert over(echo, waiting["id"])["status"] in ("aborted", "canceled")
    for bad in ("4s", "soon", "0"):
        reply = echo.create({}, headers={"Cancel-After": bad})
        assert (reply.status, reply.content_type) == (422, PROBLEM)


def test_old_clients_see_canceled_instead_of_aborted(serve_model, tmp_path):
    echo = serve_model("echo", "--replicate-legacy-status")
    echo.create({"gate": str(tmp_path / "never")})
    late = echo.create({}, headers={"Cancel-After": "5"}).json["id"]
    assert over(echo, late)["status"] == "canceled"
    echo = serve_model("echo", env={"TIDEGATE_DATA_DIR": "none"})
    echo.create({"gate": str(tmp_path / "never")})
    late = echo.create({}, headers={"Cancel-After": "5"}).json["id"]
    assert over(echo, late)["status"] == "aborted"


def test_the_official_clients_handle_an_aborted_prediction(serve_model, tmp_path):
    echo = serve_model("echo")
    echo.create({"gate": str(tmp_path / "never")})
    late = echo.python.predictions.get(echo.create({}, headers={"Cancel-After": "5"}).json["id"])
    late.wait()
    assert late.status == "canceled"
    assert late.id in [one.id for one in echo.python.predictions.list()]
    assert echo.npm("wait", id=late.id)["status"] == "canceled"
    assert echo.show(late.id)["status"] == "aborted"


def test_invalid_inputs_are_named(serve_model):
    required, inputs = serve_model("required"), serve_model("inputs", env={"TIDEGATE_DATA_DIR": "none"})
    reply = required.create({})
    assert (reply.status, reply.content_type) == (422, PROBLEM)
    problem = reply.json
    field = problem["invalid_fields"][0]
    name = field["description"].split()[0]
    assert field == {"type": "required", "field": "input", "description": f"{name} is required"}
    assert f"- input: {name} is required\n" in problem["detail"]
    assert (problem["title"], problem["status"]) == ("Input validation failed", 422)
    reply = inputs.create({"colour": "blue"})
    (field,) = reply.json["invalid_fields"]
    assert (field["type"], field["field"]) == ("enum", "input.colour")
    assert 'must be one of the following: "red", "green"' in field["description"]
    reply = inputs.server.post(f"/v1/models/{inputs.model}/predictions", {})
    assert (reply.status, reply.json["detail"]) == (422, "- input is required\n")


def test_unknown_versions_are_refused(serve_model):
    echo = serve_model("echo")

    def create(**body):
        return echo.server.post("/v1/predictions", {"input": {}, **body})

    for version in (echo.version, echo.model, echo.ref):
        assert create(version=version).status == 201
    for version in ("0" * 64, "latest", "other/model", f"{echo.model}:latest", ""):
        reply = create(version=version)
        assert (reply.status, reply.json["title"]) == (422, "Invalid version or not permitted")
    reply = create(model=echo.model)
    assert reply.status == 422
    assert reply.json["detail"] == "- version is required\n- Additional property model is not allowed\n"
    assert echo.server.post("/v1/models/other/model/predictions", {"input": {}}).status == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/deployments/anonymous/none", 404),
        ("GET", "/v1/trainings/unknown", 404),
        ("GET", "/v1/nothing/at/all", 404),
        ("GET", "/v1/predictions/..%2f..", 404),
        ("GET", "/v1/streams/made-up", 404),
        ("GET", "/v1/streams/AGE.AGE", 404),
        ("GET", "/v1/models/local/other", 404),
        ("DELETE", "/v1/predictions", 405),
        ("PATCH", "/v1/models", 405),
        ("GET", "/v1/predictions?created_after=yesterday", 422),
        ("GET", "/v1/predictions?source=elsewhere", 422),
    ],
)
def test_unknown_resources_are_problem_responses(serve_model, method, path, status):
    echo = serve_model("echo")
    reply = echo.server.request(method, path)
    assert (reply.status, reply.content_type, reply.json["status"]) == (status, PROBLEM, status)


def test_invalid_bodies_are_refused(serve_model):
    echo = serve_model("echo")

    def create(data, content_type="application/json"):
        return echo.server.request(
            "POST", "/v1/predictions", data=data, headers={"Content-Type": content_type}
        )

    for data, status in [("{", 400), ("[]", 422), ("", 422), ('{"version":1}', 422), ('{"input":{}}', 422)]:
        reply = create(data)
        assert (reply.status, reply.content_type) == (status, PROBLEM), data
    assert create("x", "text/plain").status == 415


def test_lists_can_be_filtered_by_time(serve_model):
    echo = serve_model("echo")
    first = echo.create({}).json
    second = echo.create({}).json

    def ids(**query):
        return [one["id"] for one in echo.get("/v1/predictions", params=query).json["results"]]

    assert ids() == [second["id"], first["id"]]
    assert ids(created_after=second["created_at"]) == [second["id"]]
    assert ids(created_before=second["created_at"]) == [first["id"]]
    assert ids(cursor="made up") == []


def test_all_predictions_were_made_by_the_api(serve_model):
    echo = serve_model("echo")
    made = over(echo, echo.create({}).json["id"])
    assert echo.get("/v1/predictions?source=api").json["results"] == [made]
    assert echo.get("/v1/predictions?source=web").json == {"next": None, "previous": None, "results": []}


def test_a_stream_can_be_replayed_and_resumed(serve_model, tmp_path):
    generator, gate = serve_model("generator"), tmp_path / "gate"
    made = generator.create({"count": 4, "gate": str(gate), "hold_at": 2, "log": "hi"}).json
    url = made["urls"]["stream"]
    assert url.startswith(f"{generator.server.url}/v1/streams/")
    live = requests.get(url, stream=True, timeout=15)
    assert live.headers["content-type"] == "text/event-stream"
    gate.touch()
    response = events(live.text)
    outputs = [frame for frame in response if frame["event"] == "output"]
    assert [frame["data"] for frame in outputs] == [[f"chunk{n}"] for n in range(4)]
    assert response[-1]["event"] == "done"
    assert all(re.fullmatch(r"\d+:\d+\.\d+(\.done)?", frame["id"]) for frame in response)
    assert len({frame["id"] for frame in response}) == len(response)
    again = events(requests.get(url, timeout=15).text)
    assert [one for one in again if one["event"] == "output"] == [
        one | {"id": again_one["id"]}
        for one, again_one in zip(outputs, [one for one in again if one["event"] == "output"], strict=True)
    ]
    rest = events(requests.get(url, headers={"Last-Event-ID": outputs[1]["id"]}, timeout=15).text)
    assert [frame["data"] for frame in rest if frame["event"] == "output"] == [["chunk2"], ["chunk3"]]


def test_all_readers_of_a_stream_get_the_same_event_ids(serve_model, tmp_path):
    steps, count = serve_model("steps"), 4
    url = steps.create({"count": count, "gates": str(tmp_path)}).json["urls"]["stream"]
    blocks = []
    # This reader gets one event at a time, the next one gets all at once.
    with requests.get(url, stream=True, timeout=15) as live:
        for line in live.iter_lines(decode_unicode=True):
            blocks.append(line)
            if line.startswith("data: step "):
                (tmp_path / line.removeprefix("data: step ")).touch()
    one_by_one = events("\n".join(blocks))
    at_once = events(requests.get(url, timeout=15).text)
    assert [frame["event"] for frame in one_by_one] == ["logs", "output"] * count + ["done"]
    assert one_by_one == at_once
    for index, frame in enumerate(at_once):
        rest = requests.get(url, headers={"Last-Event-ID": frame["id"]}, timeout=15).text
        assert events(rest)[:-1] == one_by_one[index + 1 : -1], frame


def test_every_line_break_starts_a_new_data_line(serve_model):
    generator = serve_model("generator")
    made = generator.create({"count": 1, "log": "a\rb\r\nc"}, headers={"Prefer": "wait"}).json
    body = requests.get(made["urls"]["stream"], timeout=15).content.decode()
    assert "\r" not in body
    logs = [frame["data"] for frame in events(body) if frame["event"] == "logs"]
    assert "".join("\n".join(lines) for lines in logs) == "a\nb\nc\n"


def test_unicode_line_breaks_do_not_truncate_a_stream(serve_model):
    generator, text = serve_model("generator"), "a\u2028b\u2029c\x0bd\x0ce\x85f"
    input = {"count": 1, "log": text}
    logs = [
        one.data for one in generator.python.stream(generator.ref, input=input) if one.event.value == "logs"
    ]
    assert "".join(logs) == "a\nb\nc\nd\ne\nf\n"
    npm = generator.npm("stream", ref=generator.ref, options={"input": input})
    assert "".join(data for event, data in npm if event == "logs") == f"{text}\n"


def test_a_canceled_stream_says_so(serve_model, tmp_path):
    generator = serve_model("generator")
    made = generator.create({"gate": str(tmp_path / "never")}).json
    generator.server.post(f"/v1/predictions/{made['id']}/cancel")
    last = events(requests.get(made["urls"]["stream"], timeout=15).text)[-1]
    assert (last["event"], json.loads(last["data"][0])) == ("done", {"reason": "canceled"})


def test_a_stream_of_a_model_without_streaming_is_refused(serve_model):
    echo = serve_model("echo")
    assert "stream" not in echo.create({}).json["urls"]
    reply = echo.create({}, stream=True)
    assert (reply.status, "Streaming not supported" in reply.json["detail"]) == (422, True)


def test_accounts_do_not_see_each_other(serve_model):
    ann = serve_model("echo", env={"TIDEGATE_API_TOKENS": "a:ann,b:bob"}, token="a")
    made = ann.create({"text": "mine"}).json["id"]
    over(ann, made)
    bob = {"Authorization": "Token b"}
    assert ann.server.get(f"/v1/predictions/{made}", headers=bob).status == 404
    assert ann.server.post(f"/v1/predictions/{made}/cancel", headers=bob).status == 404
    assert ann.server.get("/v1/predictions", headers=bob).json["results"] == []
    secrets = [
        ann.server.get("/v1/webhooks/default/secret", headers=each).json for each in (ann.headers, bob)
    ]
    assert secrets[0] != secrets[1]
    refused = ann.server.get("/v1/predictions")
    assert (refused.status, refused.content_type) == (401, PROBLEM)
    assert refused.json == {
        "title": "Unauthenticated",
        "detail": "You did not pass a valid authentication token",
        "status": 401,
    }


def test_webhook_bodies_equal_the_response_to_a_get(serve_model, receiver):
    generator = serve_model("generator")
    everything, usual, old = receiver.path(), receiver.path(), receiver.path()
    made = generator.create(
        {"count": 2},
        webhook=receiver.url + everything,
        webhook_events_filter=["start", "output", "logs", "completed"],
    ).json
    generator.create({"count": 2}, webhook=receiver.url + usual)
    generator.create({"count": 2}, webhook_completed=receiver.url + old)
    last = receiver.wait_terminal(everything)
    assert last == generator.show(made["id"])
    assert "stream" in last["urls"]
    states = [one.json["status"] for one in receiver.received(everything)]
    assert states == ["processing", "processing", "succeeded"]
    receiver.wait_terminal(usual)
    assert [len(one.json["output"]) for one in receiver.received(usual)] == [1, 2]
    receiver.wait_terminal(old)
    assert len(receiver.received(old)) == 1
    for bad in ("not an address", "ftp://h/"):
        reply = generator.create({}, webhook=bad)
        assert (reply.status, reply.json["invalid_fields"][0]["field"]) == (422, "webhook")


def test_a_create_response_is_never_incomplete(serve_model):
    generator = serve_model("generator")
    made = [generator.create({"count": 3}).json for _ in range(30)]
    unfinished = [one for one in made if one["status"] != "succeeded"]
    response = [(one["status"], one["output"], one["started_at"]) for one in unfinished]
    assert response == [("starting", None, None)] * len(response)


def test_a_cancel_close_to_the_end_returns_the_final_state(serve_model):
    echo = serve_model("echo")
    response = []
    for _ in range(60):
        id = echo.create({}).json["id"]
        response.append(echo.server.post(f"/v1/predictions/{id}/cancel", headers=echo.headers).json)
    assert {one["status"] for one in response} <= {"canceled", "succeeded"}
    assert all(one["completed_at"] for one in response)

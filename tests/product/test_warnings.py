"""Mistakes that do not stop a job: a warning in its logs and a header of the response."""

import json

from http_client import Reply, wait_for_end
from waiting import wait_until

MISSPELT = "unknown input `cuont` was ignored; did you mean `count`?"
UNKNOWN = "unknown input `steps` was ignored"
INPUTS = "unknown key `inputs` was ignored; did you mean `input`?"
OUTPUT = "the output is a string, but the declared type is an integer"


def warnings(reply: Reply) -> list[str]:
    assert "warnings" in reply.headers, str(reply)
    return json.loads(reply.headers["warnings"])


def lines(*warnings: str) -> str:
    return "".join(f"Warning: {warning}\n" for warning in warnings)


def test_a_correct_request_has_no_warnings(shared_server):
    reply = shared_server("mistyped").predict({"count": 2})
    assert ("warnings" in reply.headers, reply.json["logs"], reply.json["output"]) == (False, "", 2)


def test_an_unknown_input_is_named_with_the_one_that_was_meant(shared_server):
    reply = shared_server("mistyped").predict({"cuont": 3, "steps": 20})
    assert (reply.status, reply.json["output"]) == (200, 1)
    assert warnings(reply) == [MISSPELT, UNKNOWN]
    assert reply.json["logs"] == lines(MISSPELT, UNKNOWN)


def test_a_misspelt_key_of_the_body_is_named(shared_server):
    server = shared_server("mistyped")
    reply = server.post("/predictions", {"inputs": {"count": 3}})
    assert (reply.status, reply.json["output"], reply.json["logs"]) == (200, 1, lines(INPUTS))
    assert warnings(reply) == [INPUTS]
    # Other unknown keys are ignored silently, as in Cog.
    other = server.post("/predictions", {"input": {}, "inputs": 1, "version": "x"})
    assert ("warnings" in other.headers, other.json["logs"]) == (False, "")


def test_the_reason_of_a_refusal_may_be_a_warning(shared_server):
    reply = shared_server("required").post("/predictions", {"inputs": {"name": "x"}})
    assert (reply.status, warnings(reply)) == (422, [INPUTS])


def test_an_output_of_another_type_is_passed_on_with_a_warning(shared_server):
    reply = shared_server("mistyped").predict({"count": 5, "as_text": True})
    assert (reply.json["status"], reply.json["output"]) == ("succeeded", "5")
    assert (warnings(reply), reply.json["logs"]) == ([OUTPUT], lines(OUTPUT))


def test_the_first_value_of_another_type_has_a_warning(shared_server):
    server = shared_server("mistyped_stream")
    assert "warnings" not in server.predict().headers
    reply = server.predict({"texts": 2})
    said = "the output is a string, but the declared type is a number"
    assert (reply.json["output"], warnings(reply)) == ([1, "0", "1"], [said])


def test_asynchronous_predictions_and_webhooks_have_the_warnings(shared_server, receiver):
    server, path = shared_server("mistyped"), receiver.path()
    receiver.plan(path, 200)
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    accepted = server.start({"cuont": 1, "as_text": True}, id="warned", **hook)
    assert warnings(accepted) == [MISSPELT]
    assert wait_for_end(server, "warned")["logs"] == lines(MISSPELT, OUTPUT)
    assert warnings(server.get("/predictions/warned")) == [MISSPELT, OUTPUT]
    (message,) = receiver.wait(path)
    assert message.json["logs"] == lines(MISSPELT, OUTPUT)


def test_a_prediction_that_waits_during_a_restart_keeps_its_warnings(start_server, tmp_path):
    options = {"env": {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}}
    gate = tmp_path / "gate"
    before = start_server("echo", **options)
    found = before.get("/v1/models").json["results"][0]
    path = f"/v1/models/{found['owner']}/{found['name']}/predictions"
    before.post(path, {"input": {"gate": str(gate)}})
    waiting = before.post(path, {"input": {"gtae": "x", "text": "later"}}).json["id"]
    before.process.kill()
    before.process.wait()
    gate.touch()
    after = start_server("echo", **options)
    ended = wait_until(
        lambda: (state := after.get(f"/v1/predictions/{waiting}")).json["status"] == "succeeded" and state,
        "the end",
    )
    said = "unknown input `gtae` was ignored; did you mean `gate`?"
    assert (ended.json["logs"], ended.json["output"]) == (lines(said), "later")


def test_the_header_is_ascii_and_bounded(shared_server):
    names = {f"{n}é\n\u2028😀": 1 for n in range(1000)}
    reply = shared_server("mistyped").predict(names)
    assert reply.status == 200
    assert reply.headers["warnings"].isascii() and len(reply.headers["warnings"]) <= 4096
    assert reply.json["logs"].count("\n") == 11
    assert reply.json["logs"].endswith("Warning: 990 more unknown inputs were ignored\n")


def test_predictions_of_the_replicate_api_have_the_warnings(shared_server):
    server = shared_server("mistyped")
    name = server.get("/v1/models").json["results"][0]
    path = f"/v1/models/{name['owner']}/{name['name']}/predictions"
    body = {"input": {"cuont": 1, "as_text": True}}
    reply = server.post(path, body, headers={"Prefer": "wait"})
    assert (reply.status, reply.json["logs"]) == (201, lines(MISSPELT, OUTPUT))
    assert warnings(reply) == [MISSPELT, OUTPUT]
    assert warnings(server.get(f"/v1/predictions/{reply.json['id']}")) == [MISSPELT, OUTPUT]
    missing = server.post(path, {"inputs": {}})
    assert (missing.status, "did you mean `input`?" in missing.json["detail"]) == (422, True)

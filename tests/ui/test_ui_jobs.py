"""The data of the playground: models with their forms, one job, and its events."""

from __future__ import annotations

import signal

import pytest
import requests
from environment import free_port
from fleet_file import endpoint, model
from ui_requests import auth, events, get, read, run, write_tokens
from waiting import wait_until

ALICE, BOB, ROOT = "alice-0123456789abcdef", "bob-fedcba9876543210", "root-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob,{ROOT}:ops:admin"}


def names(stream) -> list[str]:
    return [event.name for event in stream]


def test_the_session_of_a_server_without_tokens(shared_server):
    session = read(shared_server("echo").url, "session")
    assert (session["account"], session["role"], session["tokens"]) == ("~", "admin", False)
    assert session["server"]["command"] == "serve"
    assert session["apis"] == ["cog", "replicate", "openai", "workers_ai"]
    assert session["pages"] == ["models", "jobs", "overview", "deliveries", "config", "docs"]


def test_users_have_fewer_pages_and_no_setup_logs(start_server):
    server = start_server("setup_prints", env=TOKENS)
    alice, root = (read(server.url, "session", token) for token in (ALICE, ROOT))
    assert (alice["account"], alice["role"], alice["tokens"]) == ("alice", "user", True)
    assert alice["pages"] == ["models", "jobs", "deliveries", "docs"]
    assert (root["account"], root["role"]) == ("ops", "admin")
    assert {"overview", "config"} <= set(root["pages"])
    model = "models/local/setup_prints"
    assert "logs" not in read(server.url, model, ALICE)["setup"]
    assert read(server.url, model, ROOT)["setup"]["logs"]


def test_a_model_has_all_that_its_form_needs(shared_server):
    url = shared_server("chat_prompt").url
    [listed] = read(url, "models")["models"]
    assert (listed["kind"], listed["name"]) == ("model", "local/chat_prompt")
    assert (listed["state"]["health"], listed["chat"], listed["trainable"]) == ("READY", True, False)
    shown = read(url, "models/local/chat_prompt")
    assert {name: shown[name] for name in listed} == listed
    assert "Input" in shown["schema"]["components"]["schemas"]
    assert shown["run"] == {"path": "v1/models/local/chat_prompt/predictions", "style": "replicate"}
    assert shown["versions"] == [{"version": listed["version"], "health": "READY", "runnable": True}]
    assert (shown["setup"]["status"], shown["setup"]["took_s"] > 0) == ("succeeded", True)
    assert get(url, "/ui/api/models/local/none").status_code == 404
    assert get(url, "/ui/api/endpoints/none").status_code == 404


def test_the_state_of_a_model_that_loads_or_failed(start_server):
    server = start_server("setup_fails", until=("SETUP_FAILED",))
    [listed] = read(server.url, "models")["models"]
    assert listed["state"]["health"] == "SETUP_FAILED"
    assert listed["state"]["detail"]
    lazy = start_server("echo", "--lazy")
    assert read(lazy.url, "models")["models"][0]["state"]["health"] == "NOT_LOADED"


def test_events_of_a_run(shared_server, tmp_path):
    url = shared_server("steps").url
    job = run(url, "local/steps", {"count": 2, "gates": str(tmp_path)})
    stream = events(url, f"jobs/~/{job}/events")
    assert stream.next("job").data["id"] == job
    assert stream.next("logs").data == {"text": "step 0\n"}
    (tmp_path / "0").touch()
    assert stream.next("output").data == {"index": 0, "value": "value 0"}
    (tmp_path / "1").touch()
    rest = stream.rest()
    assert [event.data for event in rest if event.name == "output"] == [{"index": 1, "value": "value 1"}]
    assert rest[-1].name == "end"
    end = rest[-1].data
    assert (end["status"], end["output_is_list"], end["attempt"]) == ("succeeded", True, 1)
    assert not {"input", "output", "logs"} & end.keys()
    shown = read(url, f"jobs/~/{job}")
    assert shown["output"] == ["value 0", "value 1"]
    assert shown["input"]["count"] == 2
    assert shown["logs"] == "step 0\nstep 1\n"
    assert (shown["api"], shown["kind"], shown["model"]) == ("replicate", "prediction", "local/steps")
    assert shown["waited_s"] >= 0 and shown["ran_s"] > 0


def test_a_stream_is_resumed_after_any_event(shared_server):
    url = shared_server("steps").url
    job = run(url, "local/steps", {"count": 3})
    every = list(events(url, f"jobs/~/{job}/events"))
    data = [event for event in every if event.name in ("logs", "output")]
    assert len([event for event in data if event.name == "output"]) == 3
    for number, event in enumerate(data):
        again = list(events(url, f"jobs/~/{job}/events", last_id=event.id))
        assert [e for e in again if e.name in ("logs", "output")] == data[number + 1 :]
        assert (again[0].name, again[-1].name) == ("job", "end")
        assert "restarted" not in [e.name for e in again]


def test_an_id_of_another_server_process_starts_again(shared_server):
    url = shared_server("steps").url
    job = run(url, "local/steps", {"count": 1})
    list(events(url, f"jobs/~/{job}/events"))
    again = list(events(url, f"jobs/~/{job}/events", last_id="0123456789abcdef:1.7"))
    assert again[0].name == "restarted"
    assert [event.data["value"] for event in again if event.name == "output"] == ["value 0"]
    for invalid in ("", "x", "a:b.c"):
        assert "restarted" not in names(events(url, f"jobs/~/{job}/events", last_id=invalid))


def test_a_value_that_is_returned_is_one_output(shared_server):
    url = shared_server("echo").url
    job = run(url, "local/echo", {"text": "a\u2028\r\nb"})
    outputs = [event.data for event in events(url, f"jobs/~/{job}/events") if event.name == "output"]
    assert outputs == [{"index": 0, "value": "a\u2028\r\nb"}]
    assert read(url, f"jobs/~/{job}")["output_is_list"] is False


def test_cancel_and_failure_end_the_stream(shared_server, tmp_path):
    url = shared_server("steps").url
    job = run(url, "local/steps", {"gates": str(tmp_path)})
    stream = events(url, f"jobs/~/{job}/events")
    stream.next("logs")
    assert requests.post(f"{url}/admin/jobs/~/{job}/cancel", timeout=15).status_code == 200
    assert stream.next("end").data["status"] == "canceled"
    url = shared_server("echo").url
    failed = run(url, "local/echo", {"fail": "no such thing"})
    end = events(url, f"jobs/~/{failed}/events").next("end").data
    assert (end["status"], "no such thing" in end["error"]) == ("failed", True)


def test_input_and_output_are_private_to_the_account(start_server):
    server = start_server("steps", env=TOKENS)
    job = run(server.url, "local/steps", {"count": 1}, ALICE)
    path = f"jobs/alice/{job}"
    own = list(events(server.url, f"{path}/events", ALICE))
    assert "output" in [event.name for event in own]
    assert read(server.url, path, ALICE)["output"] == ["value 0"]
    for hidden in (path, f"{path}/events", f"jobs/bob/{job}", f"jobs/~/{job}"):
        assert get(server.url, f"/ui/api/{hidden}", BOB).status_code == 404
    shown = read(server.url, path, ROOT)
    assert (shown["private"], shown["logs"]) == (True, "step 0\n")
    assert not {"input", "output"} & shown.keys()
    seen = names(events(server.url, f"{path}/events", ROOT))
    assert "output" not in seen and seen[-1] == "end"


def test_a_revoked_token_ends_the_stream_of_a_job(start_server, tmp_path):
    file = tmp_path / "tokens"
    write_tokens(file, alice=ALICE, bob=BOB)
    server = start_server("steps", "--tokens-file", str(file))
    job = run(server.url, "local/steps", {"gates": str(tmp_path)}, ALICE)
    stream = events(server.url, f"jobs/alice/{job}/events", ALICE)
    stream.next("logs")
    write_tokens(file, bob=BOB)
    server.signal(signal.SIGHUP)
    assert "end" not in names(stream)
    assert requests.get(f"{server.url}/ui/api/session", headers=auth(ALICE), timeout=15).status_code == 401


def test_files_in_outputs_can_be_loaded(start_server, tmp_path):
    server = start_server("files_out", env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")})
    job = run(server.url, "local/files_out", {"kind": "one"})
    outputs = [e.data["value"] for e in events(server.url, f"jobs/~/{job}/events") if e.name == "output"]
    output = read(server.url, f"jobs/~/{job}")["output"]
    for link in (*outputs, output):
        assert link.startswith(f"{server.url}/v1/files/")
        assert requests.get(link, timeout=15).text == "hello"


def test_a_job_is_found_after_a_restart(start_server, tmp_path):
    options = {"env": {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}}
    server = start_server("steps", **options)
    job = run(server.url, "local/steps", {"count": 2})
    first = list(events(server.url, f"jobs/~/{job}/events"))
    server.stop()
    server = start_server("steps", **options)
    shown = read(server.url, f"jobs/~/{job}")
    assert (shown["output"], shown["output_is_list"]) == (["value 0", "value 1"], True)
    again = list(events(server.url, f"jobs/~/{job}/events", last_id=first[-1].id))
    assert again[0].name == "restarted"
    assert [e.data["index"] for e in again if e.name == "output"] == [0, 1]


def attempts(url: str, job: str) -> list[dict]:
    return get(url, f"/admin/jobs/~/{job}/attempts").json()["attempts"]


def test_a_job_that_runs_once_has_one_attempt(shared_server, tmp_path):
    url = shared_server("steps").url
    job = run(url, "local/steps", {"gates": str(tmp_path), "count": 1})
    events(url, f"jobs/~/{job}/events").next("logs")
    [running] = attempts(url, job)
    assert (running["number"], {"ended_at", "end", "runner"} & running.keys()) == (1, set())
    (tmp_path / "0").touch()
    end = events(url, f"jobs/~/{job}/events").next("end").data
    [ended] = attempts(url, job)
    assert (ended["started_at"], ended["ended_at"]) == (end["started_at"], end["completed_at"])
    assert ended["end"] == "succeeded"


def test_the_attempts_of_a_job_survive_the_server(start_server, tmp_path):
    gates = tmp_path / "gates"
    gates.mkdir()
    env = {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}
    # After a restart the job is in the only slot at once.
    options = {"env": env, "until": ("READY", "BUSY")}
    server = start_server("steps", **options)
    job = run(server.url, "local/steps", {"gates": str(gates), "count": 1})
    for number in (1, 2):
        events(server.url, f"jobs/~/{job}/events").next("logs")
        assert read(server.url, f"jobs/~/{job}")["attempt"] == number
        assert [attempt.get("end") for attempt in attempts(server.url, job)] == ["lost"] * (number - 1) + [
            None
        ]
        server.signal(signal.SIGKILL)
        server.process.wait()
        server = start_server("steps", **options)
    (gates / "0").touch()
    assert events(server.url, f"jobs/~/{job}/events").next("end").data["attempt"] == 3
    listed = attempts(server.url, job)
    assert [attempt["number"] for attempt in listed] == [1, 2, 3]
    assert [attempt["end"] for attempt in listed] == ["lost", "lost", "succeeded"]
    times = [attempt[name] for attempt in listed for name in ("started_at", "ended_at")]
    assert times == sorted(times)
    server.stop()
    server = start_server("steps", **options)
    assert read(server.url, f"jobs/~/{job}")["attempt"] == 3


def test_a_job_that_waits_for_its_third_attempt_shows_the_second(start_server, tmp_path):
    gates = tmp_path / "gates"
    gates.mkdir()
    env = {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}

    def start(workers: int):
        return start_server("steps", "--workers", str(workers), env=env, until=("READY", "BUSY"))

    server = start(2)
    jobs = [run(server.url, "local/steps", {"gates": str(gates), "count": 1}) for _ in range(2)]
    for next_workers in (2, 1):
        for job in jobs:
            events(server.url, f"jobs/~/{job}/events").next("logs")
        server.signal(signal.SIGKILL)
        server.process.wait()
        server = start(next_workers)

    def shown():
        documents = [read(server.url, f"jobs/~/{job}") for job in jobs]
        return sorted((document["status"], document["attempt"]) for document in documents)

    wait_until(lambda: shown() == [("processing", 3), ("queued", 2)], "the third attempt of one job")


def test_an_endpoint_of_a_platform(platform):
    session = read(platform.url, "session")
    assert (session["server"]["command"], session["apis"]) == ("platform", ["runpod"])
    [listed] = read(platform.url, "models")["models"]
    assert (listed["kind"], listed["name"], listed["state"]["health"]) == ("endpoint", "echo", "NO_WORKERS")
    shown = read(platform.url, "endpoints/echo")
    assert shown["run"] == {"path": "v2/echo/run", "style": "runpod"}
    reply = requests.post(f"{platform.url}/v2/echo/run", json={"input": {"a": 1}}, timeout=15)
    job = reply.json()["id"]
    document = read(platform.url, f"jobs/~/{job}")
    assert (document["endpoint"], document["input"]) == ("echo", {"a": 1})
    stream = events(platform.url, f"jobs/~/{job}/events")
    assert stream.next("job").data["status"] == "queued"
    assert requests.post(f"{platform.url}/admin/jobs/~/{job}/cancel", timeout=15).status_code == 200
    assert stream.next("end").data["status"] == "canceled"


def test_the_models_of_a_router(router, upstream):
    running = router(model("@cf/a/b", endpoint(upstream.url)))
    session = read(running.url, "session")
    assert session["server"]["command"] == "router"
    assert session["pages"] == ["models", "overview", "config", "docs"]
    assert session["apis"] == ["cog", "openai", "workers_ai"]
    [listed] = read(running.url, "models")["models"]
    assert (listed["kind"], listed["name"]) == ("routed", "@cf/a/b")
    shown = read(running.url, "models/@cf/a/b")
    assert shown["run"]["style"] in ("chat", "cog")
    wait_until(lambda: read(running.url, "models")["models"][0]["state"]["health"] == "READY", "a backend")


def test_the_form_of_a_routed_model_has_the_schema_of_its_backend(router, start_server):
    backend = start_server("ui_kinds")
    named = endpoint(backend.url, kind="tidegate", upstream_model="local/ui_kinds")
    gone = endpoint(f"http://127.0.0.1:{free_port()}", kind="tidegate")
    running = router(model("kinds", named), model("gone", gone))
    shown = read(running.url, "models/kinds")
    assert shown["schema"]["components"] == read(backend.url, "models/local/ui_kinds")["schema"]["components"]
    assert shown["example"] == read(backend.url, "models/local/ui_kinds")["example"]
    shown = read(running.url, "models/gone")
    assert (shown["schema"], shown["example"]) == (None, {})


@pytest.mark.parametrize("path", ["jobs/~/x", "jobs/~/x/events", "jobs/no such/x"])
def test_unknown_jobs(shared_server, path):
    reply = get(shared_server("echo").url, f"/ui/api/{path}")
    assert (reply.status_code, isinstance(reply.json()["error"], str)) == (404, True)


def test_a_trained_model_is_listed_for_the_account_that_trained_it(start_server, tmp_path):
    tokens = f"{ALICE}:alice,{BOB}:bob,{ROOT}:root:admin"
    env = {"TIDEGATE_API_TOKENS": tokens, "TIDEGATE_DATA_DIR": str(tmp_path)}
    server = start_server("learns", env=env)
    created = {"owner": "alice", "name": "mine", "visibility": "private", "hardware": "local"}
    assert requests.post(f"{server.url}/v1/models", json=created, headers=auth(ALICE)).status_code == 201
    version = read(server.url, "models/local/learns", ALICE)["version"]
    path = f"v1/models/local/learns/versions/{version}/trainings"
    body = {"destination": "alice/mine", "input": {"word": "salve"}}
    job = requests.post(f"{server.url}/{path}", json=body, headers=auth(ALICE)).json()["id"]
    events(server.url, f"jobs/alice/{job}/events", ALICE).next("end")

    def names(token):
        return [model["name"] for model in read(server.url, "models", token)["models"]]

    assert names(ALICE) == ["local/learns", "alice/mine"]
    assert names(BOB) == ["local/learns"]
    shown = read(server.url, "models/alice/mine", ALICE)
    assert (shown["kind"], shown["run"]["path"]) == ("trained", "v1/models/alice/mine/predictions")
    assert [version["runnable"] for version in shown["versions"]] == [True]
    assert get(server.url, "/ui/api/models/alice/mine", BOB).status_code == 404
    live = [model["name"] for model in read(server.url, "snapshot", BOB)["sections"]["models"]]
    assert live == ["local/learns"]
    done = run(server.url, "alice/mine", {"name": "Ada"}, ALICE)
    assert events(server.url, f"jobs/alice/{done}/events", ALICE).next("end").data["status"] == "succeeded"

"""The effective settings, the documentation, and pages of jobs."""

from __future__ import annotations

import re

import pytest
import requests
from fleet_file import endpoint, model
from ui_requests import auth, events, get, read, run

ALICE, ROOT = "alice-0123456789abcdef", "root-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{ROOT}:ops:admin"}


def settings(url: str, token: str | None = None) -> dict[str, dict[str, str | None]]:
    return {entry["name"]: entry for entry in read(url, "config", token)["settings"]}


def origins(url: str, *names: str) -> list[tuple[str | None, str | None]]:
    shown = settings(url)
    return [(shown[name]["value"], shown[name]["origin"]) for name in names]


def test_every_setting_has_its_origin(start_server, tmp_path):
    file = tmp_path / "tidegate.toml"
    file.write_text('# settings\nkeep_for = "2h"\nqueue = 9\n')
    env = {"TIDEGATE_MAX_BODY": "7MiB", "TIDEGATE_CONFIG": str(file), "COG_SETUP_TIMEOUT": "77"}
    server = start_server("echo", "--queue", "5", env=env)
    assert origins(server.url, "queue", "max_body", "keep_for", "setup_timeout") == [
        ("5", "command line"),
        ("7MiB", "environment"),
        ("2h", f"file {file}:2"),
        ("77", "environment"),
    ]
    shown = settings(server.url)
    assert shown["max_output"]["origin"] == "default"
    assert (shown["queue"]["flag"], shown["queue"]["env"]) == ("--queue", "TIDEGATE_QUEUE")


def test_secrets_are_hidden_and_users_see_nothing(start_server):
    env = TOKENS | {"TIDEGATE_WEBHOOK_SECRET": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}
    server = start_server("echo", "--upload-url", "https://user:hunter2@files.example/x?key=k3y", env=env)
    assert get(server.url, "/ui/api/config", ALICE).status_code == 403
    text = get(server.url, "/ui/api/config", ROOT).text
    for secret in (ALICE, ROOT, "C2FVsBQ", "hunter2", "k3y"):
        assert secret not in text
    shown = settings(server.url, ROOT)
    assert shown["api_tokens"]["value"] == shown["webhook_secret"]["value"] == "(hidden)"
    assert shown["upload_url"]["value"] == "https://(hidden)@files.example/x?(hidden)"


def test_the_settings_of_the_other_servers(platform, router, upstream):
    assert origins(platform.url, "port")[0] == (str(platform.port), "command line")
    running = router(model("m", endpoint(upstream.url)))
    assert origins(running.url, "drain_timeout") == [("1s", "command line")]


def operations(document: dict) -> list[tuple[str, str]]:
    paths = document["openapi"]["paths"].items()
    return [(method.upper(), path) for path, methods in paths for method in methods]


def docs(url: str) -> dict[str, dict]:
    return {document["title"]: document for document in read(url, "docs")["apis"]}


def test_the_documentation_of_a_server(shared_server):
    url = shared_server("echo").url
    shown = docs(url)
    assert list(shown) == ["Cog: local/echo", "Replicate", "OpenAI", "Workers AI", "Operation"]
    cog = shown["Cog: local/echo"]
    assert (cog["api"], cog["base"]) == ("cog", "models/local/echo")
    assert cog["openapi"] == requests.get(f"{url}/openapi.json", timeout=15).json()
    assert ("POST", "/v1/models/{owner}/{name}/predictions") in operations(shown["Replicate"])


@pytest.mark.parametrize("command", ["serve", "platform", "router"])
def test_documented_operations_exist(command, request, shared_server):
    """A path that is not known, or does not know the method, has an error of its own."""
    if command == "serve":
        url = shared_server("echo").url
    elif command == "platform":
        url = request.getfixturevalue("platform").url
    else:
        upstream = request.getfixturevalue("upstream")
        url = request.getfixturevalue("router")(model("m", endpoint(upstream.url))).url
    documents = [document for document in docs(url).values() if not document["base"]]
    assert documents
    for document in documents:
        for method, path in operations(document):
            if path == "/admin/router/reload":
                continue
            filled = re.sub(r"{endpoint}", "echo", path)
            filled = re.sub(r"{[^}]+}", "x", filled)
            # Workers may wait long for a job.
            if "job-take" in path or "job-stop" in path:
                continue
            reply = requests.request(method, url + filled, json={}, timeout=15)
            assert reply.status_code != 405, (method, path)
            assert "no such path" not in reply.text.lower(), (method, path, reply.text)


def page(url: str, query: str, token: str | None = None) -> tuple[list[str], str | None]:
    reply = requests.get(f"{url}/admin/jobs?{query}", headers=auth(token), timeout=15)
    assert reply.status_code == 200, reply.text
    return [job["id"] for job in reply.json()["jobs"]], reply.json()["next"]


def pages(url: str, query: str, token: str | None = None) -> list[list[str]]:
    found, cursor = [], ""
    while cursor is not None:
        jobs, cursor = page(url, f"{query}&before={cursor}", token)
        found.append(jobs)
    return found


@pytest.mark.parametrize("data", ["none", "data"])
def test_pages_have_every_job_once(start_server, tmp_path, data):
    folder = "none" if data == "none" else str(tmp_path / "data")
    server = start_server("echo", env={"TIDEGATE_DATA_DIR": folder})
    ended = [run(server.url, "local/echo", {"fail": "x" if n % 3 == 0 else ""}) for n in range(7)]
    for job in ended:
        events(server.url, f"jobs/~/{job}/events").next("end")
    gate = tmp_path / "gate"
    still_open = [run(server.url, "local/echo", {"gate": str(gate)}) for _ in range(3)]
    every = [*reversed(still_open), *reversed(ended)]
    assert pages(server.url, "limit=4") == [every[:4], every[4:8], every[8:]]
    assert pages(server.url, "limit=10") == [every]
    assert pages(server.url, "limit=2&status=open") == [every[:2], every[2:3]]
    failed = [job for n, job in reversed(list(enumerate(ended))) if n % 3 == 0]
    assert pages(server.url, "limit=2&status=failed") == [failed[:2], failed[2:]]
    _, cursor = page(server.url, "limit=4")
    newer = run(server.url, "local/echo", {"gate": str(gate)})
    assert page(server.url, f"limit=4&before={cursor}")[0] == every[4:8], "a new job moves nothing"
    gate.touch()
    events(server.url, f"jobs/~/{newer}/events").next("end")
    if data != "none":
        server.stop()
        server = start_server("echo", env={"TIDEGATE_DATA_DIR": folder})
        found = [job for jobs in pages(server.url, "limit=3") for job in jobs]
        assert sorted(found) == sorted([*every, newer])


def test_invalid_cursors_are_refused(shared_server):
    for cursor in ("x", "open.1", "over.x.y"):
        reply = get(shared_server("echo").url, f"/admin/jobs?before={cursor}")
        assert (reply.status_code, "next" in reply.json()["error"]) == (400, True)

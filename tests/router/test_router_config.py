"""Mistakes in the configuration and on the command line: what, where, and how to fix it."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from pathlib import Path

import pytest
from environment import tidegate_bin, tidegate_env
from fleet_file import account, endpoint, fleet_toml, model, token_hash
from waiting import wait_until

HASH = token_hash("secret")
UNUSED_ID = 64123
GOOD = """\
[[model]]
name = "m"

[[model.endpoint]]
url = "http://127.0.0.1:9"
kind = "openai"
"""


def tidegate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(tidegate_bin()), *map(str, arguments)]
    return subprocess.run(
        command, env=tidegate_env(), capture_output=True, text=True, timeout=30, check=False
    )


def check(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    return tidegate("router", "check", file)


def test_a_valid_file_is_summarized(tmp_path):
    done = check(tmp_path, GOOD)
    assert done.returncode == 0, done.stderr
    assert "1 models, 1 endpoints, 0 accounts" in done.stdout


@pytest.mark.parametrize(
    ("text", "line", "problem", "fix"),
    [
        (GOOD + "permit = 4\n", 7, "no key `permit`", "did you mean `permits`?"),
        ('sites = "a"\n' + GOOD, 1, "no key `sites`", "site"),
        (GOOD + GOOD, 8, "`m`", "name"),
        (GOOD.replace('kind = "openai"', 'kind = "vllm"'), 6, "vllm", "openai"),
        (GOOD + "permits = 0\n", 7, "permits", "1"),
        (GOOD + 'permits = "four"\n', 7, "whole number", "whole number"),
        (GOOD.replace("http://127.0.0.1:9", "127.0.0.1:9"), 5, "no scheme", "http://"),
        (GOOD.replace('name = "m"', 'name = "m'), 2, "not valid TOML", "quotes"),
        ('[[model]]\nname = "m"\nqueue = { algorithm = "lifo" }\n', 3, "lifo", "fifo"),
        ('[[model]]\nname = "m"\ntimeout = { total = "soon" }\n', 3, "soon", "30s"),
        ('[[account]]\nname = "a"\ntoken_hash = "plain-secret"\n' + GOOD, 3, "a token", "sha256"),
        (f'[[account]]\nname = "a"\ntoken_hash = "{HASH}"\nrate = "many"\n', 4, "many", "min"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_its_fix(tmp_path, text, line, problem, fix):
    done = check(tmp_path, text)
    assert done.returncode == 64, done.stdout
    assert re.search(rf"fleet\.toml:{line}:\d+: ", done.stderr), done.stderr
    assert problem in done.stderr
    _, _, tip = done.stderr.partition("try: ")
    assert fix in tip, done.stderr


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    text = GOOD + "permits = 0\nweight = -1\n"
    done = check(tmp_path, text)
    assert done.stderr.count("fleet.toml:") == 2, done.stderr


def test_two_accounts_cannot_have_the_same_name_or_token(tmp_path):
    twice = fleet_toml(model("m", endpoint("http://127.0.0.1:9")), accounts=(account("a"), account("a")))
    done = check(tmp_path, twice)
    assert done.returncode == 64
    assert "`a`" in done.stderr
    assert account("a")["token_hash"] not in done.stderr


def test_secrets_are_not_in_messages(tmp_path):
    done = check(tmp_path, '[[account]]\nname = "a"\ntoken_hash = "plain-secret"\n' + GOOD)
    assert "plain-secret" not in done.stdout + done.stderr


def test_a_missing_file_is_named(tmp_path):
    done = tidegate("router", "check", tmp_path / "none.toml")
    assert done.returncode == 64
    assert "none.toml" in done.stderr
    started = tidegate("--config", tmp_path / "none.toml", "router")
    assert started.returncode == 64
    assert "none.toml" in started.stderr


def test_a_router_needs_backends():
    done = tidegate("router")
    assert done.returncode == 64
    assert "no backends" in done.stderr
    assert "--backend" in done.stderr
    assert "--config" in done.stderr


def test_a_file_and_backends_exclude_each_other(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text(GOOD)
    done = tidegate("--config", file, "router", "--backend", "http://127.0.0.1:9")
    assert done.returncode == 64
    assert "--config and --backend exclude each other" in done.stderr


@pytest.mark.parametrize("backend", ["localhost:8000", "vllm=http://127.0.0.1:9", "http://"])
def test_a_backend_that_is_no_url_is_refused(backend):
    done = tidegate("router", "--backend", backend)
    assert done.returncode == 64
    assert backend.rpartition("=")[2] in done.stderr or "vllm" in done.stderr


def test_a_router_with_a_mistake_does_not_start(tmp_path):
    file = tmp_path / "fleet.toml"
    file.write_text(GOOD + "permit = 4\n")
    done = tidegate("--config", file, "router", "--port", "0")
    assert done.returncode == 64
    assert "fleet.toml:7:1" in done.stderr


def test_settings_of_the_command_may_stand_in_the_file(tmp_path):
    assert check(tmp_path, "port = 8080\n" + GOOD).returncode == 0


def test_backends_that_are_not_there_yet_are_asked_again(router, upstream):
    upstream.stop()
    running = router(backends=(upstream.url,))
    assert running.request("GET", "/v1/models").json["data"] == []
    assert "no backend has answered yet" in running.server.log()
    upstream.start()

    wait_until(
        lambda: [entry["id"] for entry in running.request("GET", "/v1/models").json["data"]][:1] == ["m"],
        "the models of the backend",
        30,
    )
    assert running.chat().status == 200


def test_unknown_paths_and_methods_are_clear_errors(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("DELETE", "/admin/router", 405),
        ("GET", "/predictions", 404),
        ("GET", "/client/v4/accounts/a/ai/nowhere", 404),
    ):
        reply = running.request(method, path)
        assert reply.status == status, f"{method} {path}: {reply}"
        assert path in str(reply)


@pytest.mark.skipif(os.geteuid() != 0, reason="the user of the tests may have other processes")
def test_a_limit_of_threads_is_an_error_of_usage():
    """The threads of the runtime start, one for each processor, and those of the event loops do not."""
    n_threads = 1 + len(os.sched_getaffinity(0))

    def become_another_user() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (n_threads, n_threads))
        os.setgroups([])
        os.setgid(UNUSED_ID)
        os.setuid(UNUSED_ID)

    done = subprocess.run(
        [str(tidegate_bin()), "router", "--backend", "http://127.0.0.1:9", "--port", "0"],
        env=tidegate_env(),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        preexec_fn=become_another_user,
    )
    assert done.returncode == 64, done.stderr
    assert "ulimit -u" in done.stderr

"""The files in deploy/, scripts/cluster.sh and docs/guide/scale-out.md fit the program.

Every command line is parsed by the program itself: with `--help` at its end, it checks the flags and values
before it and prints the help.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from environment import ROOT, clean_env, tidegate_bin

DEPLOY = ROOT / "deploy"
CLUSTER_SCRIPT = ROOT / "scripts/cluster.sh"
GUIDE = ROOT / "docs/guide/scale-out.md"
YAML_FILES = sorted(DEPLOY.rglob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").iterdir())
SHELL_SCRIPTS = [CLUSTER_SCRIPT, DEPLOY / "make-secrets.sh"]

UNIT_SETTINGS = {
    "Unit": {"Description", "After", "StartLimitIntervalSec"},
    "Service": {
        "User",
        "EnvironmentFile",
        "ExecStart",
        "Restart",
        "RestartPreventExitStatus",
        "KillMode",
        "TimeoutStopSec",
        "NoNewPrivileges",
        "ProtectSystem",
        "PrivateTmp",
        "CapabilityBoundingSet",
    },
    "Install": {"WantedBy"},
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(tidegate_bin()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=clean_env(), check=False, timeout=60)


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text("utf-8")))


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The name, the pod and the container of every container of ours in the Kubernetes manifests."""
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in documents(file):
            if document["kind"] in ("Deployment", "StatefulSet"):
                pod = document["spec"]["template"]["spec"]
                for container in pod["containers"]:
                    if container["image"] == "tidegate":
                        yield document["metadata"]["name"], pod, container


def compose_services() -> dict[str, dict[str, Any]]:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    return {name: service for name, service in services.items() if service["image"] == "tidegate"}


def unit_settings(file: Path) -> dict[str, dict[str, str]]:
    """The settings by section; of a setting that is given several times, the last one."""
    sections: dict[str, dict[str, str]] = {}
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section[name] = value
    return sections


def guide_commands() -> Iterator[list[str]]:
    for line in GUIDE.read_text("utf-8").splitlines():
        if line.startswith("    tidegate "):
            yield shlex.split(line, comments=True)[1:]


def commands() -> Iterator[tuple[str, list[str]]]:
    for name, service in compose_services().items():
        yield f"compose {name}", service["command"]
    for name, _, container in containers():
        yield f"kubernetes {name}", container["args"]
    for unit in UNITS:
        start = unit_settings(unit)["Service"]["ExecStart"]
        yield unit.name, shlex.split(start.replace("%H", "host").replace("%i", "hello"))[1:]
    for command in guide_commands():
        yield f"scale-out.md {shlex.join(command)}", command


COMMANDS = dict(commands())


def seconds(text: str) -> int:
    units = {"s": 1, "m": 60, "min": 60, "": 1}
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", text).groups()
    return int(number) * units[unit]


def drain_timeout(command: list[str]) -> int:
    return seconds(re.search(r"--drain-timeout[= ](\w+)", " ".join(command))[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_line_is_valid(name: str):
    command = COMMANDS[name]
    assert command[0] in ("api", "director", "migrate", "token")
    result = run(*command, "--help")
    assert result.returncode == 0, result.stderr
    assert re.search(rf"^Usage: \S+ {command[0]} ", result.stdout, re.M), result.stdout


def test_an_invalid_command_line_is_found():
    assert run("api", "--unknown", "--help").returncode != 0
    assert run("api", "--drain-timeout=often", "--help").returncode != 0


def test_the_flags_of_the_cluster_script_exist():
    script = CLUSTER_SCRIPT.read_text("utf-8").replace("\\\n", " ")
    calls = re.findall(r'run "(?:api|director)-\$number" (api|director) (.*)', script)
    assert [name for name, _ in calls] == ["api", "director"]
    for name, arguments in calls:
        flags = set(re.findall(r"--[a-z-]+", arguments))
        assert len(flags) >= 2
        assert flags - set(re.findall(r"--[a-z-]+", run(name, "--help").stdout)) == set()


def test_the_variables_exist():
    files = [*YAML_FILES, *UNITS, *SHELL_SCRIPTS, DEPLOY / "Dockerfile", GUIDE]
    text = "".join(file.read_text("utf-8") for file in files)
    used = set(re.findall(r"\bTIDEGATE_[A-Z_]+", text))
    # `crates/tidegate/build.rs` reads it.
    used.remove("TIDEGATE_BUILD_COMMIT")
    listed = run("api", "--help").stdout + run("director", "--help").stdout
    assert used - set(re.findall(r"\bTIDEGATE_[A-Z_]+", listed)) == set()


def test_the_metrics_of_the_queries_exist():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/metrics.md").read_text("utf-8"), re.M)
    scaled = (DEPLOY / "kubernetes/autoscaling.yaml").read_text("utf-8")
    assert "tidegate_queue_waiting{model=" in scaled
    used = set(re.findall(r"\btidegate_\w+", scaled + GUIDE.read_text("utf-8")))
    assert len(used) > 8
    assert used - set(rows) == set()


@pytest.mark.parametrize("file", YAML_FILES, ids=lambda file: file.name)
def test_a_manifest_is_yaml(file: Path):
    assert all(isinstance(document, dict) for document in documents(file))


def test_every_manifest_is_listed():
    folder = DEPLOY / "kubernetes"
    text = (folder / "kustomization.yaml").read_text("utf-8")
    listed = set(re.findall(r"^ +(?:# )?- (\w+\.yaml)$", text, re.M))
    assert listed == {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}


def test_compose_has_two_of_each_and_declares_what_it_uses():
    compose = documents(DEPLOY / "compose.yaml")[0]
    kinds = sorted(service["command"][0] for service in compose_services().values())
    assert kinds == ["api", "api", "director", "director"]
    for service in compose["services"].values():
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
        for name, needed in service.get("depends_on", {}).items():
            assert "healthcheck" in compose["services"][name], needed


def test_processes_have_the_time_to_drain():
    for service in compose_services().values():
        assert seconds(service["stop_grace_period"]) > drain_timeout(service["command"])
    for _, pod, container in containers():
        assert pod["terminationGracePeriodSeconds"] > drain_timeout(container["args"])
    for unit in UNITS:
        service = unit_settings(unit)["Service"]
        assert seconds(service["TimeoutStopSec"]) > drain_timeout([service["ExecStart"]])


def test_kubernetes_has_probes_budgets_and_resources():
    budgets = [
        document["metadata"]["name"]
        for file in (DEPLOY / "kubernetes").glob("*.yaml")
        for document in documents(file)
        if document["kind"] == "PodDisruptionBudget"
    ]
    found = list(containers())
    assert sorted(name for name, _, _ in found) == sorted(budgets)
    for _, _, container in found:
        assert {"readinessProbe", "livenessProbe"} <= set(container)
        assert {"requests", "limits"} == set(container["resources"])


def readiness_checks() -> dict[str, list[str]]:
    """The commands that check whether a director is ready."""
    checks = {
        f"kubernetes {name}": container["readinessProbe"]["exec"]["command"]
        for name, _, container in containers()
        if container["args"][0] == "director"
    }
    for name, service in compose_services().items():
        if service["command"][0] == "director":
            checks[f"compose {name}"] = service["healthcheck"]["test"][1:]
    return checks


@pytest.mark.parametrize("name", readiness_checks())
@pytest.mark.parametrize("is_ready", [True, False])
def test_a_director_is_ready_when_its_models_are(name: str, is_ready: bool):
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            body = {"is_ready": is_ready, "is_connected": True, "models": [{"status": "STARTING"}]}
            self.wfile.write(json.dumps(body).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        program, *arguments = readiness_checks()[name]
        assert program == "python"
        port = str(server.server_address[1])
        command = [sys.executable, *(text.replace("5001", port) for text in arguments)]
        result = subprocess.run(command, capture_output=True, timeout=60, check=False)
        server.shutdown()
    assert (result.returncode == 0) is is_ready, result.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_the_expected_settings(unit: Path):
    settings = unit_settings(unit)
    assert {name: UNIT_SETTINGS[name] - set(settings[name]) for name in UNIT_SETTINGS} == {
        name: set() for name in UNIT_SETTINGS
    }


def test_the_image_is_built_from_files_that_exist_with_the_required_rust():
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8")
    required = re.search(r'^rust-version = "(.*)"', (ROOT / "Cargo.toml").read_text("utf-8"), re.M)[1]
    assert f"FROM rust:{required}-" in dockerfile
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8")
    included = re.findall(r"^!(.+)$", ignore, re.M)
    assert len(included) >= 5
    assert [path for path in included if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_valid_and_executable(script: Path):
    assert script.stat().st_mode & 0o111 == 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_secrets_fit_together_and_are_not_overwritten(tmp_path: Path):
    folder = tmp_path / "secrets"
    create = [str(DEPLOY / "make-secrets.sh"), str(folder)]
    subprocess.run(create, check=True, capture_output=True)
    files = {file.name: file.read_text("utf-8") for file in folder.iterdir()}
    used = documents(DEPLOY / "compose.yaml")[0]["secrets"]
    assert {Path(secret["file"]).name for secret in used.values()} == set(files) - {"admin.token"}
    assert folder.stat().st_mode & 0o777 == 0o700

    digest = hashlib.sha256(files["admin.token"].encode()).hexdigest()
    assert files["tokens"].split() == [f"sha256:{digest}", "ops", "admin"]
    assert f":{files['postgres.password'].strip()}@postgres:" in files["api.toml"]
    assert f":{files['valkey.conf'].split()[1]}@valkey:" in files["director.toml"]
    assert files["director.toml"] in files["api.toml"]
    assert len({*files.values()}) == len(files)

    assert subprocess.run(create, check=False, capture_output=True).returncode == 1

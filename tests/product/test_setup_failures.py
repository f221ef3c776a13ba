"""A failed setup shows the user's output and traceback."""

import sys

import pytest
from waiting import wait_until

EXPECTED = {
    "setup_fails": [
        "about to fail",
        "Traceback (most recent call last)",
        "RuntimeError: no weights here",
        "predict.py",
    ],
    "setup_missing_import": ["ModuleNotFoundError: No module named 'not_a_real_package'", "predict.py"],
    "setup_crashes": ["last words"],
}


@pytest.mark.parametrize("model", EXPECTED)
def test_a_failed_setup_is_shown_in_health(start_server, model):
    logs = start_server(model).wait_health("SETUP_FAILED", "DEFUNCT")["setup"]["logs"]
    assert [part for part in EXPECTED[model] if part not in logs] == []


@pytest.mark.parametrize("model", EXPECTED)
def test_a_failed_setup_is_shown_in_the_server_log(start_server, model):
    server = start_server(model)
    wait_until(
        lambda: all(part in server.log() for part in EXPECTED[model]), "all parts in the server log", 5
    )


def test_the_output_of_setup_is_in_health(start_server):
    logs = start_server("setup_prints").health()["setup"]["logs"]
    assert logs.index("loading weights") < logs.index("warming up")


def test_the_output_of_setup_is_visible_while_starting(start_server, gate):
    server = start_server("setup_slow", env={"SETUP_GATE": str(gate)}, until=("STARTING",))
    wait_until(lambda: "still loading" in server.health()["setup"].get("logs", ""), "the line in health")
    wait_until(lambda: "still loading" in server.log(), "the line on the terminal")


def test_an_interpreter_without_the_package_is_reported(start_server, tmp_path):
    # This interpreter ignores PYTHONPATH and site-packages, so it never finds the package.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec env -u PYTHONPATH {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    server = start_server("echo", "--python", str(bare), until=("SETUP_FAILED",))
    logs = server.health()["setup"]["logs"]
    assert f"tidegate doctor --python {bare}" in logs

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


def test_a_failed_setup_says_that_the_server_stays_up(start_server):
    server = start_server("setup_fails", until=("SETUP_FAILED",))
    wait_until(lambda: "the server stays up" in server.log(), "the notice", 5)
    (notice,) = [line for line in server.log().splitlines() if "the server stays up" in line]
    assert "RuntimeError: no weights here" in notice
    wait_until(lambda: "with --watch" in server.log(), "the advice", 5)
    server.wait_health("SETUP_FAILED")


def test_watch_loads_a_model_whose_setup_failed_again(start_server, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "cog.yaml").write_text("predict: predict.py:P\n")
    code = "class P:\n    def setup(self):\n        {}\n    def predict(self) -> str:\n        return 'x'\n"
    (model / "predict.py").write_text(code.format("raise RuntimeError('no weights here')"))
    server = start_server(model, "--watch", until=("SETUP_FAILED",))
    wait_until(lambda: "--watch loads it again" in server.log(), "the advice", 5)
    (server.directory / "predict.py").write_text(code.format("pass"))
    server.wait_health("READY")
    assert server.predict().json["output"] == "x"


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


TOKENS = {"TIDEGATE_API_TOKENS": "alice-0123456789abcdef:alice,root-00112233445566:ops:admin"}


class TestAccess:
    @staticmethod
    def health(server, path="/health-check", token=None):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return server.get(path, headers=headers).json

    def test_with_tokens_only_administrators_see_tracebacks_of_the_setup(self, start_server):
        server = start_server("setup_fails", env=TOKENS, until=("SETUP_FAILED",))
        for token in (None, "alice-0123456789abcdef", "unknown-0123456789abc"):
            body = self.health(server, token=token)
            assert (body["status"], body["setup"]["status"]) == ("SETUP_FAILED", "failed")
            assert "logs" not in body["setup"] and "Traceback" not in str(body)
        assert "Traceback" in self.health(server, token="root-00112233445566")["setup"]["logs"]

    def test_a_model_of_several_shows_its_setup_to_administrators_only(self, start_server, tmp_path):
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "cog.yaml").write_text("predict: predict.py:P\n")
            code = "class P:\n    def setup(self):\n        print('loading')\n"
            code += "    def predict(self) -> str:\n        return 'x'\n"
            (tmp_path / name / "predict.py").write_text(code)
        server = start_server(tmp_path, env=TOKENS | {"TIDEGATE_OWNER": "ann"})
        path = "/models/ann/one/health-check"
        assert "logs" not in self.health(server, path, "alice-0123456789abcdef")["setup"]
        assert self.health(server, path, "root-00112233445566")["setup"]["logs"] == "loading\n"

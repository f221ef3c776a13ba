"""`--config`: flags in a file."""

import pytest
from environment import MODELS


@pytest.fixture
def file(tmp_path):
    def write(text: str):
        path = tmp_path / "tidegate.toml"
        path.write_text(text)
        return path

    return write


def owner(server) -> str:
    return server.get("/v1/models").json["results"][0]["owner"]


def test_flags_override_variables_and_variables_override_the_file(start_server, file):
    config = str(file('owner = "from-file"\n'))
    env = {"TIDEGATE_OWNER": "from-variable"}
    assert owner(start_server("echo")) == "local"
    assert owner(start_server("echo", "--config", config)) == "from-file"
    assert owner(start_server("echo", "--config", config, env=env)) == "from-variable"
    assert owner(start_server("echo", "--config", config, "--owner", "from-flag", env=env)) == "from-flag"


def test_file_values_are_parsed_like_flags(start_server, file):
    config = file(
        """
        # numbers, texts, truths and lists
        workers = 2
        max_body = "1KB"
        rate_limit = "1/h"
        replicate_legacy_status = true
        allow_private_networks = ["127.0.0.0/8", "::1"]
        """
    )
    server = start_server("echo", env={"TIDEGATE_CONFIG": str(config)})
    assert len(server.get("/admin/children").json["children"]) == 2
    too_large = server.post("/predictions", {"input": {"text": "x" * 1001}})
    assert (too_large.status, "1000 bytes" in too_large.json["error"]) == (413, True)
    assert [server.get("/v1/models").status for _ in range(2)] == [200, 429]


def test_one_file_serves_every_command(tidegate, file):
    config = file('queue = 5\nlog_level = "warn"\npredict = "elsewhere.py:Predictor"\n')
    done = tidegate("schema", MODELS / "echo", "--config", config)
    assert done.returncode != 0 and "elsewhere.py" in done.stderr


def test_compatibility_variables_override_the_file(start_server, file):
    config = str(file("concurrency = 3\n"))
    slots = {
        name: start_server("function_async", "--config", config, env=env)
        .get("/admin/models")
        .json["models"][0]["slots"]
        for name, env in {"file": {}, "environment": {"COG_MAX_CONCURRENCY": "2"}}.items()
    }
    assert slots == {"file": 3, "environment": 2}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("queue = 5\n\nqueues = 7\n", 3, ["no setting `queues`", "tidegate serve --help"]),
        ("keep-for = 5\n", 1, ["no setting `keep-for`", "write `keep_for`"]),
        ("\nqueue = 'many'\n", 2, ["invalid value for `queue`", "invalid digit", "--queue"]),
        ("on_lost = 'cry'\n", 1, ["invalid value for `on_lost`", "retry, fail"]),
        ("workers = 1000\n", 1, ["invalid value for `workers`", "from 1 to 256"]),
        ("keep_for = 2026-01-31\n", 1, ["invalid value for `keep_for`", "must be a string, a number"]),
        ("[serve]\nqueue = 5\n", 1, ["no setting `serve`"]),
        ("queue = 5\nqueue = 6\n", 2, ["duplicate key"]),
        ("queue = 5\nkeep_for 1h\n", 2, ["write lines like"]),
    ],
)
def test_mistakes_are_reported_with_file_and_line(tidegate, file, text, line, words):
    path = file(text)
    done = tidegate("serve", MODELS / "echo", "--config", path)
    assert done.returncode == 64, done.stderr
    assert f"error: {path}:{line}: " in done.stderr
    for word in [*words, "try: "]:
        assert word in done.stderr, done.stderr


def test_a_missing_file_is_named(tidegate, tmp_path):
    done = tidegate("serve", MODELS / "echo", "--config", tmp_path / "missing.toml")
    assert (done.returncode, "missing.toml" in done.stderr) == (64, True)


def test_the_top_level_help_lists_it(tidegate):
    assert "--config <FILE>" in tidegate("--help").stdout
    assert "--config <FILE>" not in tidegate("serve", "--help").stdout


def test_a_certificate_in_the_file_needs_its_key(tidegate, file):
    done = tidegate("serve", MODELS / "echo", "--port", "0", "--config", file("tls_cert = 'cert.pem'\n"))
    assert (done.returncode, "--tls-cert needs --tls-key" in done.stderr) == (64, True)

"""The command line."""

import json
import subprocess

import pytest
from environment import MODELS, ROOT, tidegate_bin, tidegate_env


def test_version_has_the_commit(tidegate):
    done = tidegate("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("tidegate 0.")


def test_help_names_the_commands(tidegate):
    text = tidegate("--help").stdout
    for command in ("serve", "predict", "init", "doctor", "schema", "completions"):
        assert command in text


def test_the_help_of_serve_has_groups_and_examples(tidegate):
    text = tidegate("serve", "--help").stdout
    headings = (
        "Model",
        "Listening",
        "Access",
        "Queue and limits",
        "Storage",
        "Webhooks",
        "Files",
        "Process",
        "Examples",
    )
    assert [line[:-1] for line in text.splitlines() if line[:-1] in headings] == list(headings)


@pytest.mark.parametrize("before", [True, False])
def test_global_options_stand_before_or_after_the_command(tidegate, before):
    option = ("--log-level", "no=such=level")
    done = tidegate(*option, "serve", "nowhere") if before else tidegate("serve", "nowhere", *option)
    assert done.returncode == 64 and "no=such=level" in done.stderr


def test_completions(tidegate):
    script = tidegate("completions", "bash").stdout
    assert "tidegate" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize("model", ["schema_a", "schema_b", "schema_c"])
def test_schema_prints_the_schema(tidegate, model):
    done = tidegate("schema", MODELS / model)
    assert json.loads(done.stdout) == json.loads((MODELS / model / "openapi.json").read_text())


class TestPredict:
    def test_of_a_folder(self, tidegate):
        done = tidegate("predict", MODELS / "echo", "-i", "text=from the shell")
        assert (done.returncode, done.stdout.strip()) == (0, "from the shell")

    def test_of_a_url(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "-i", "text=over the wire")
        assert (done.returncode, done.stdout.strip()) == (0, "over the wire")

    def test_typed_inputs(self, tidegate, shared_server):
        done = tidegate(
            "predict",
            shared_server("inputs").url,
            "-i",
            "whole=7",
            "-i",
            "flag=true",
            "-i",
            "real=0.5",
            "-i",
            "text=8",
        )
        seen = json.loads(done.stdout)
        assert (seen["whole"], seen["flag"], seen["text"]) == (["int", 7], ["bool", True], ["str", "8"])

    def test_a_file(self, tidegate, shared_server, tmp_path):
        file = tmp_path / "in.txt"
        file.write_text("content")
        done = tidegate("predict", shared_server("files_in").url, "-i", f"path=@{file}")
        assert json.loads(done.stdout)["path"][1:3] == [".txt", "content"]

    def test_json_from_an_argument(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "--json", '{"text": "inline"}')
        assert json.loads(done.stdout)["output"] == "inline"

    def test_output_to_a_file(self, tidegate, shared_server, tmp_path):
        out = tmp_path / "picture.png"
        done = tidegate("predict", shared_server("outputs").url, "-i", "kind=path_png", "-o", out)
        assert (done.returncode, out.read_bytes()) == (0, b"\x89PNG")

    def test_logs_go_to_stderr(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "-i", "log=a line")
        assert "a line" in done.stderr and "a line" not in done.stdout

    def test_a_failure(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "-i", "fail=bad luck")
        assert done.returncode not in (0, 101)
        assert "bad luck" in done.stderr

    def test_an_invalid_input(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "-i", "limit=99")
        assert done.returncode not in (0, 101)
        assert "limit" in done.stderr and "99" in done.stderr

    def test_a_file_that_is_not_there(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("files_in").url, "-i", "path=@/nonexistent.png")
        assert done.returncode not in (0, 101)
        assert "/nonexistent.png" in done.stderr

    def test_a_server_that_is_not_there(self, tidegate):
        done = tidegate("predict", "http://127.0.0.1:1", "-i", "text=x")
        assert done.returncode not in (0, 101)
        assert "127.0.0.1:1" in done.stderr
        assert "connection refused" in done.stderr and done.stderr.count("\n") == 1


class TestInit:
    def test_the_new_model_runs(self, tidegate, tmp_path):
        folder = tmp_path / "new"
        done = tidegate("init", folder)
        assert done.returncode == 0, done.stderr
        assert (folder / "cog.yaml").exists()
        schema = json.loads(tidegate("schema", folder).stdout)
        required = schema["components"]["schemas"]["Input"].get("required", [])
        inputs = [part for name in required for part in ("-i", f"{name}=x")]
        assert tidegate("predict", folder, *inputs).returncode == 0

    @pytest.mark.parametrize(
        ("file", "code", "line"),
        [
            (
                "predict.py",
                "class Mine:\n    def predict(self) -> str:\n        return 'x'\n",
                'predict: "predict.py:Mine"',
            ),
            ("run.py", "def run() -> str:\n    return 'x'\n", 'run: "run.py:run"'),
        ],
    )
    def test_an_existing_model_gets_its_cog_yaml(self, tidegate, tmp_path, file, code, line):
        (tmp_path / file).write_text(code)
        (tmp_path / "requirements.txt").write_text("")
        done = tidegate("init", tmp_path)
        assert done.returncode == 0, done.stderr
        assert line in done.stderr
        yaml = (tmp_path / "cog.yaml").read_text()
        assert line in yaml and "python_requirements: requirements.txt" in yaml
        assert (tmp_path / file).read_text() == code
        assert tidegate("predict", tmp_path).stdout == "x\n"

    def test_code_without_a_predictor_gets_no_cog_yaml(self, tidegate, tmp_path):
        (tmp_path / "predict.py").write_text("x = 1\n")
        done = tidegate("init", tmp_path)
        assert done.returncode == 64
        assert "has no class with a method" in done.stderr and "predict.py:NAME" in done.stderr
        assert not (tmp_path / "cog.yaml").exists()

    def test_nothing_is_overwritten(self, tidegate, tmp_path):
        (tmp_path / "cog.yaml").write_text("predict: mine.py:Mine\n")
        done = tidegate("init", tmp_path)
        assert done.returncode not in (0, 101)
        assert (tmp_path / "cog.yaml").read_text() == "predict: mine.py:Mine\n"

    def test_a_folder_with_a_handler_needs_none(self, tidegate, tmp_path):
        folder = tmp_path / "my handler"
        folder.mkdir()
        (folder / "handler.py").write_text("import runpod\nrunpod.serverless.start({})\n")
        done = tidegate("init", folder)
        assert done.returncode == 64 and "needs no cog.yaml" in done.stderr
        assert f"try: tidegate serve '{folder}'" in done.stderr
        assert not (folder / "cog.yaml").exists()

    def test_the_next_command_is_quoted_for_the_shell(self, tidegate, tmp_path):
        done = tidegate("init", tmp_path / "a b")
        assert f"next: tidegate serve '{tmp_path}/a b'" in done.stderr


def test_doctor_shows_how_to_correct_the_cog_yaml(tidegate, tmp_path):
    (tmp_path / "cog.yaml").write_text("predct: predict.py:Predictor\n")
    done = tidegate("doctor", tmp_path)
    assert done.returncode == 1
    assert "try: rename `predct` to `predict`, or remove it" in done.stdout


def test_doctor(tidegate):
    done = tidegate("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "python" in done.stdout.lower()


def test_a_port_in_use(tidegate, shared_server):
    server = shared_server("echo")
    done = tidegate("serve", MODELS / "echo", "--host", "127.0.0.1", "--port", server.port)
    assert done.returncode not in (0, 101)
    assert str(server.port) in done.stderr


def test_an_unknown_flag(tidegate):
    done = tidegate("serve", MODELS / "echo", "--wrokers", "2")
    assert done.returncode == 64
    assert "--wrokers" in done.stderr


def test_a_mistyped_input_name_is_reported(tidegate):
    done = tidegate("predict", MODELS / "echo", "-i", "txet=x")
    assert done.returncode == 64
    assert "`txet`" in done.stderr and "text" in done.stderr


MARKED = """
import pathlib
pathlib.Path(__file__).with_name("loaded").touch()

def predict(n: int, text: str = "") -> str:
    return text * n

def train(data: str) -> str:
    return data
"""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "n: Field required"),
        (["-i", "n=0.5"], "0.5 is not of type"),
        (["--json", '{"n": "x"}'], '"x" is not of type'),
        (["-i", "n=1", "-i", "nope=1"], "no input `nope`"),
        (["--json", '{"n": 1, "nope": 1}'], "no input `nope`"),
        (["--json", '{"n": 1, "data": "d"}'], "no input `data`"),
        (["-i", "n=1", "-i", "data=d"], "no input `data`"),
        (["--training", "-i", "data=d", "-i", "text=x"], "no input `text`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_predict_validates_the_input_before_it_loads_the_model(tidegate, tmp_path, arguments, reason):
    (tmp_path / "cog.yaml").write_text("predict: predict.py:predict\ntrain: predict.py:train\n")
    (tmp_path / "predict.py").write_text(MARKED)
    done = tidegate("predict", tmp_path, *arguments)
    assert (done.returncode, reason in done.stderr) == (64, True), done.stderr
    assert not (tmp_path / "loaded").exists()


def test_predict_reports_why_a_model_could_not_be_loaded(tidegate):
    done = tidegate("predict", MODELS / "setup_fails")
    assert done.returncode == 1
    assert "failed to load the model" in done.stderr and "RuntimeError: no weights here" in done.stderr


def test_an_unknown_input_for_a_server_is_reported(tidegate, shared_server):
    done = tidegate("predict", shared_server("echo").url, "--json", '{"txet": "x"}')
    assert done.returncode == 64 and "`txet`" in done.stderr


def test_the_error_of_a_prediction_says_once_that_it_failed(tidegate, shared_server):
    done = tidegate("predict", shared_server("echo").url, "-i", "fail=bad luck")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the prediction failed: ValueError: bad luck"


def test_training_without_a_training_function(tidegate):
    done = tidegate("predict", MODELS / "echo", "--training")
    assert done.returncode == 64 and "train" in done.stderr


def test_train_mode_accepts_the_inputs_of_train(tidegate, tmp_path):
    command = ("predict", ROOT / "examples" / "training", "--mode", "train", "-i", "data=data:,4")
    done = tidegate(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch 3" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["output.weights.json"]


@pytest.mark.parametrize("command", ["completions bash", f"schema {MODELS / 'echo'}"])
def test_a_closed_output_pipe_is_not_an_error(command):
    shell = f"set -o pipefail; {tidegate_bin()} {command} | true"
    done = subprocess.run(
        ["bash", "-c", shell], env=tidegate_env(), capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_invalid_log_filter_is_refused(tidegate):
    done = tidegate("serve", MODELS / "echo", "--log-level", "foo=bar=baz")
    assert done.returncode == 64 and "`foo=bar=baz`" in done.stderr


def test_output_files_get_the_expected_extension(tidegate, tmp_path):
    (tmp_path / "cog.yaml").write_text("predict: predict.py:predict\n")
    (tmp_path / "predict.py").write_text(
        "import pathlib, tempfile\n"
        "def predict() -> list[pathlib.Path]:\n"
        "    folder = pathlib.Path(tempfile.mkdtemp())\n"
        "    files = [folder / f'a.{end}' for end in ('jpg', 'txt', 'mp3', 'bin', 'wav')]\n"
        "    for file in files:\n"
        "        file.write_text('x')\n"
        "    return files\n"
    )
    done = tidegate("predict", tmp_path, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "0.jpg",
        "1.txt",
        "2.mp3",
        "3.bin",
        "4.wav",
    ]

"""`tidegate predict`: inputs, outputs, streams, and which model runs."""

import json
import os
import pty
import signal
import subprocess

import pytest
from certificates import make_certificate
from environment import MODELS, ROOT, tidegate_bin, tidegate_env
from waiting import wait_until

FILES = """
import pathlib, tempfile
from cog import BaseModel, Path

PNG = b"\\x89PNG"

class Output(BaseModel):
    mask: Path
    note: str

def file(name: str, content: bytes = PNG) -> Path:
    path = pathlib.Path(tempfile.mkdtemp()) / name
    path.write_bytes(content)
    return Path(path)

def predict() -> {output}:
    return {value}
"""

TOKENS = """
import os, time
from cog import ConcatenateIterator

def predict(gate: str = "", fail: bool = False) -> ConcatenateIterator[str]:
    print("thinking")
    yield "one "
    while gate and not os.path.exists(gate):
        time.sleep(0.005)
    if fail:
        raise ValueError("no more")
    yield "two"
"""


def write_model(folder, code):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cog.yaml").write_text("predict: predict.py:predict\n")
    (folder / "predict.py").write_text(code)
    return folder


class TestInputs:
    @pytest.mark.parametrize("source", ["-", "@-"])
    def test_json_is_read_from_stdin(self, tidegate, shared_server, source):
        done = tidegate("predict", shared_server("echo").url, "--json", source, input='{"text": "piped"}')
        assert json.loads(done.stdout)["output"] == "piped", done.stderr

    def test_a_repeated_input_is_a_list(self, tidegate, shared_server, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).write_text(f"content of {name}")
        given = [part for name in ("a", "b") for part in ("-i", f"paths=@{tmp_path / name}")]
        seen = json.loads(tidegate("predict", shared_server("files_in").url, *given).stdout)
        assert [path[2] for path in seen["paths"]] == ["content of a", "content of b"]
        seen = json.loads(tidegate("predict", shared_server("files_in").url, *given[:2]).stdout)
        assert [path[2] for path in seen["paths"]] == ["content of a"]

    def test_a_repeated_scalar_is_an_error(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "-i", "text=a", "-i", "text=b")
        assert done.returncode == 64
        assert "`-i text=…` is given 2 times" in done.stderr and "not a list" in done.stderr

    def test_a_file_in_json_is_read(self, tidegate, shared_server, tmp_path):
        (tmp_path / "in.txt").write_text("content")
        given = json.dumps({"path": f"@{tmp_path / 'in.txt'}", "text": "@home"})
        done = tidegate("predict", shared_server("files_in").url, "--json", given)
        seen = json.loads(done.stdout)["output"]
        assert seen["path"][2] == "content" and seen["text"] == ["str", "@home"]

    def test_an_input_without_its_flag(self, tidegate):
        done = tidegate("predict", "text=hello")
        assert done.returncode == 64 and "-i text=hello" in done.stderr


class TestWholePrediction:
    def test_a_server_and_a_folder_print_the_same_fields(self, tidegate, shared_server):
        for target in (shared_server("echo").url, MODELS / "echo"):
            done = tidegate("predict", target, "--json", '{"text": "x", "log": "a line"}')
            shown = json.loads(done.stdout)
            assert (done.returncode, shown["status"], shown["output"]) == (0, "succeeded", "x")
            assert shown["logs"] == "a line\n" and shown["metrics"]["predict_time"] >= 0
            assert "a line" in done.stderr

    def test_a_failure_is_in_the_json(self, tidegate, shared_server):
        done = tidegate("predict", shared_server("echo").url, "--json", '{"fail": "bad luck"}')
        shown = json.loads(done.stdout)
        assert (done.returncode, shown["status"]) == (1, "failed")
        assert "bad luck" in shown["error"]

    def test_files_are_saved_and_named(self, tidegate, tmp_path):
        model = write_model(tmp_path / "model", FILES.format(output="list[Path]", value="[file('a.png')]"))
        done = tidegate("predict", model, "--json", "{}", cwd=tmp_path)
        assert json.loads(done.stdout)["output"] == ["output.0.png"], done.stderr
        assert (tmp_path / "output.0.png").read_bytes() == b"\x89PNG"

    def test_the_json_goes_to_the_output_path(self, tidegate, shared_server, tmp_path):
        out = tmp_path / "all.json"
        done = tidegate("predict", shared_server("echo").url, "--json", '{"text": "x"}', "-o", out)
        assert (done.returncode, done.stdout) == (0, "")
        assert json.loads(out.read_text())["output"] == "x"


#: name: (annotation, expression, printed names)
FILE_OUTPUTS = {
    "one file": ("Path", "file('a.png')", "output.png\n"),
    "a list": ("list[Path]", "[file('a.png'), file('b.txt', b'text')]", "output.0.png\noutput.1.txt\n"),
}


class TestFileOutputs:
    @pytest.mark.parametrize("case", FILE_OUTPUTS)
    def test_a_file_is_saved_and_its_name_printed(self, tidegate, tmp_path, case):
        output, value, printed = FILE_OUTPUTS[case]
        model = write_model(tmp_path / "model", FILES.format(output=output, value=value))
        done = tidegate("predict", model, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr
        assert (tmp_path / printed.split()[0]).read_bytes() == b"\x89PNG"

    def test_a_file_in_an_object_is_saved(self, tidegate, tmp_path):
        code = FILES.format(output="Output", value="Output(mask=file('a.png'), note='data:,x')")
        done = tidegate("predict", write_model(tmp_path / "model", code), cwd=tmp_path)
        assert json.loads(done.stdout) == {"mask": "output.mask.png", "note": "data:,x"}, done.stderr
        assert (tmp_path / "output.mask.png").exists()

    def test_an_output_folder_that_exists(self, tidegate, tmp_path):
        model = write_model(tmp_path / "model", FILES.format(output="Path", value="file('a.png')"))
        done = tidegate("predict", model, "-o", tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "output.png").read_bytes() == b"\x89PNG"


class TestStreams:
    def read_first(self, arguments):
        """Start a prediction, and read the first token while the model waits."""
        process = subprocess.Popen(
            [str(tidegate_bin()), "predict", *map(str, arguments)],
            env=tidegate_env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        first = os.read(process.stdout.fileno(), 4096)
        return process, first.decode()

    def test_tokens_of_a_folder_are_printed_as_they_arrive(self, tmp_path, gate):
        model = write_model(tmp_path / "model", TOKENS)
        process, first = self.read_first([model, "-i", f"gate={gate}"])
        assert (first, process.poll()) == ("one ", None)
        gate.open()
        rest, logs = process.communicate(timeout=30)
        assert (process.returncode, rest, logs) == (0, b"two\n", b"thinking\n")

    def test_tokens_of_a_server_are_printed_as_they_arrive(self, start_server, tmp_path, gate):
        code = TOKENS.replace("import ConcatenateIterator", "import ConcatenateIterator, streaming")
        server = start_server(
            write_model(tmp_path / "model", code.replace("def predict", "@streaming\ndef predict"))
        )
        process, first = self.read_first([server.url, "-i", f"gate={gate}"])
        assert (first, process.poll()) == ("one ", None)
        gate.open()
        rest, logs = process.communicate(timeout=30)
        assert (process.returncode, rest, logs) == (0, b"two\n", b"thinking\n")
        process, _ = self.read_first([server.url, "-i", "fail=true"])
        _, logs = process.communicate(timeout=30)
        assert process.returncode == 1 and b"no more" in logs

    def test_a_failure_ends_the_stream(self, tidegate, tmp_path):
        done = tidegate("predict", write_model(tmp_path / "model", TOKENS), "-i", "fail=true")
        assert (done.returncode, done.stdout) == (1, "one \n")
        assert "no more" in done.stderr

    def test_a_terminal_shows_progress(self, gate):
        control, terminal = pty.openpty()
        process = subprocess.Popen(
            [str(tidegate_bin()), "predict", str(MODELS / "echo"), "-i", f"gate={gate}"],
            env=tidegate_env(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=terminal,
        )
        os.close(terminal)
        shown = b""
        while b"running the prediction" not in shown:
            shown += os.read(control, 4096)
        assert b"loading the model" in shown
        gate.open()
        assert process.communicate(timeout=30)[0] == b"hello\n"
        os.close(control)


class TestWhichModel:
    @pytest.fixture
    def models(self, tmp_path):
        code = "def predict(text: str = 'x') -> str:\n    return {word!r} + text\n"
        write_model(tmp_path / "models" / "one", code.format(word="one "))
        write_model(tmp_path / "models" / "ann" / "two", code.format(word="two "))
        return tmp_path / "models"

    def test_cog_yaml_is_found_from_a_subfolder(self, tidegate, models):
        below = models / "one" / "some" / "sub"
        below.mkdir(parents=True)
        assert tidegate("predict", "-i", "text=1", cwd=below).stdout == "one 1\n"
        assert tidegate("predict", ".", cwd=below).stdout == "one x\n"
        assert tidegate("predict", below).stdout == "one x\n"
        assert "Input" in json.loads(tidegate("schema", cwd=below).stdout)["components"]["schemas"]

    def test_a_folder_of_models_needs_a_choice(self, tidegate, models):
        done = tidegate("predict", models)
        assert done.returncode == 64
        assert "--model: ann/two, local/one" in done.stderr
        assert tidegate("predict", models, "--model", "two").stdout == "two x\n"
        assert tidegate("predict", models, "--model", "local/one").stdout == "one x\n"
        assert "`three`" in tidegate("predict", models, "--model", "three").stderr

    def test_a_server_with_several_models_needs_a_choice(self, tidegate, start_server, models):
        server = start_server(models)
        done = tidegate("predict", server.url)
        assert done.returncode == 64
        assert "--model: ann/two, local/one" in done.stderr
        assert tidegate("predict", server.url, "--model", "two", "-i", "text=y").stdout == "two y\n"

    def test_schema_and_doctor_of_a_folder_of_models(self, tidegate, models):
        shown = json.loads(tidegate("schema", models).stdout)
        assert sorted(shown) == ["ann/two", "local/one"]
        assert shown["ann/two"] == json.loads(tidegate("schema", models, "--model", "two").stdout)
        done = tidegate("doctor", models)
        assert done.returncode == 0, done.stdout
        assert done.stdout.count("the schema of the model is valid") == 2
        (models / "one" / "predict.py").write_text("def predict(x: bytes) -> str: ...\n")
        done = tidegate("doctor", models)
        assert done.returncode == 1
        assert done.stdout.count("the schema of the model is valid") == 1 and "bytes" in done.stdout


class TestTls:
    @pytest.fixture
    def https(self, start_server, tmp_path):
        certificate, key = make_certificate(tmp_path, "localhost")
        return start_server(
            "echo", "--tls-cert", str(certificate), "--tls-key", str(key), certificate=certificate
        )

    def test_client_commands_trust_what_the_user_trusts(self, https, tmp_path):
        certificate = tmp_path / "localhost.pem"
        other, _ = make_certificate(tmp_path, "other")

        def run(*arguments, **variables):
            return subprocess.run(
                [str(tidegate_bin()), *map(str, arguments)],
                env=tidegate_env(TIDEGATE_URL=https.url, **variables),
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )

        for command in (["ps"], ["predict", https.url, "-i", "text=over tls"]):
            for flags in (["--ca", certificate], ["--insecure"]):
                done = run(*command, *flags)
                assert done.returncode == 0, done.stderr
            assert run(*command, SSL_CERT_FILE=str(certificate)).returncode == 0
            assert run(*command, "--insecure", SSL_CERT_FILE=str(other)).returncode == 0
            for done in (run(*command), run(*command, "--ca", other)):
                assert done.returncode == 1
                assert "certificate" in done.stderr and "--ca FILE" in done.stderr
        done = run("predict", https.url.replace("127.0.0.1", "localhost"), "--ca", certificate)
        assert done.stdout == "hello\n", done.stderr

    def test_a_file_without_certificates_is_an_error(self, tidegate, tmp_path):
        empty = tmp_path / "empty.pem"
        empty.write_text("")
        done = tidegate("ps", "--url", "https://127.0.0.1:1", "--ca", empty)
        assert done.returncode == 64 and "contains no certificate" in done.stderr
        done = tidegate("ps", "--url", "https://127.0.0.1:1", "--ca", tmp_path / "gone.pem")
        assert done.returncode == 64 and "gone.pem" in done.stderr


def test_the_streaming_example(tidegate):
    done = tidegate("predict", ROOT / "examples" / "streaming", "-i", "prompt=rain", "-i", "words=3")
    assert done.stdout == "rain is on \n", done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_prediction_with_its_exit_code(tmp_path, number, code):
    began, gate = tmp_path / "began", tmp_path / "gate"
    source = TOKENS.replace('    print("thinking")', f'    open({str(began)!r}, "w").close()')
    model = write_model(tmp_path / "model", source)
    command = [str(tidegate_bin()), "predict", str(model), "-i", f"gate={gate}"]
    process = subprocess.Popen(command, env=tidegate_env(), stderr=subprocess.PIPE, text=True)
    try:
        wait_until(began.exists, "the prediction to run", 30)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == code and "interrupted" in err

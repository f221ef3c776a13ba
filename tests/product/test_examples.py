"""Every folder in examples/ can be served and works as described."""

import base64
import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from environment import ROOT, tidegate_bin, tidegate_env

EXAMPLES = ROOT / "examples"
#: What makes a folder an example.
MODELS = ("cog.yaml", "handler.py")


def text(uri: str) -> str:
    return base64.b64decode(uri.split("base64,")[1]).decode()


def test_every_example_has_a_test():
    folders = {path.parent.name.replace("-", "_") for path in EXAMPLES.glob("*/*") if path.name in MODELS}
    assert folders == {
        name.removeprefix("test_example_") for name in globals() if name.startswith("test_example_")
    }


def test_example_hello(server_pool):
    body = server_pool.fresh("tidegate", EXAMPLES / "hello").predict({"name": "Ada"}).json
    assert (body["output"], body["logs"]) == ("hello Ada", "greeting Ada\n")


def test_example_async_concurrent(server_pool):
    server = server_pool.fresh("tidegate", EXAMPLES / "async-concurrent")
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda i: server.predict({"question": f"q{i}", "seconds": 1}).json, range(8)))
    assert [body["output"]["answer"] for body in bodies] == [f"Q{i}" for i in range(8)]
    assert time.monotonic() - began < 6, "eight waits of a second did not overlap"
    assert max(body["metrics"]["at_once"] for body in bodies) > 1


def test_example_batching(server_pool):
    server = server_pool.fresh("tidegate", EXAMPLES / "batching")
    texts = [f"word{n}" for n in range(12)] + [""]
    with ThreadPoolExecutor(len(texts)) as pool:
        # The first of them is alone; the others wait while it runs, and share a call.
        bodies = list(pool.map(lambda text: server.predict({"text": text}).json, texts))
    assert [body.get("output") for body in bodies] == [*(text.upper() for text in texts[:-1]), None]
    assert bodies[-1]["error"] == "Prediction failed: ValueError: the text is empty"
    assert {body["logs"].splitlines()[0] for body in bodies} != {"one of 1"}, "no two shared a call"


def test_example_batching_torch():
    # torch is not installed here; the schema is read without importing the model.
    command = [tidegate_bin(), "schema", EXAMPLES / "batching-torch"]
    schema = json.loads(subprocess.run(command, env=tidegate_env(), capture_output=True, timeout=30).stdout)
    schemas = schema["components"]["schemas"]
    assert list(schemas["Input"]["properties"]) == ["text"]
    assert schemas["Output"]["items"] == {"type": "number"}


def test_example_streaming(server_pool):
    server = server_pool.fresh("tidegate", EXAMPLES / "streaming")
    body = server.predict({"prompt": "tea", "words": 3}).json
    assert body["output"] == ["tea ", "is ", "on "]
    assert body["metrics"]["words"] == 3


def test_example_files(server_pool):
    server = server_pool.fresh("tidegate", EXAMPLES / "files")
    output = server.predict({"text": "data:text/plain;base64," + base64.b64encode(b"b a b").decode()}).json[
        "output"
    ]
    assert output["words"] == 3
    assert json.loads(text(output["counts"])) == {"b": 2, "a": 1}
    assert output["chart"].startswith("data:image/svg+xml;base64,")


def test_example_training(server_pool, tmp_path):
    server = server_pool.fresh("tidegate", EXAMPLES / "training")
    data = "data:text/plain;base64," + base64.b64encode(b"4\n4\n").decode()
    trained = server.predict({"data": data, "epochs": 50}, path="/trainings").json
    assert "epoch 50: 4.000\n" in trained["logs"]
    assert server.predict({"number": 8}).json["output"] == 8
    weights = tmp_path / "weights.json"
    weights.write_text(text(trained["output"]["weights"]))
    tuned = server_pool.fresh("tidegate", EXAMPLES / "training", env={"COG_WEIGHTS": str(weights)})
    assert abs(tuned.predict({"number": 8}).json["output"] - 2) < 0.001


def predicted(example, *inputs):
    command = [tidegate_bin(), "predict", EXAMPLES / example / "handler.py"]
    command += [word for pair in inputs for word in ("-i", pair)]
    return subprocess.run(command, env=tidegate_env(), capture_output=True, text=True, timeout=30)


def test_example_runpod_plain():
    assert json.loads(predicted("runpod-plain", "text=the tide").stdout) == {
        "reversed": "tide the",
        "words": 2,
    }
    assert json.loads(predicted("runpod-plain").stdout)["reversed"] == "in comes tide the", (
        "its test_input.json"
    )
    assert "give some text" in predicted("runpod-plain", "text=").stderr


def test_example_runpod_async():
    assert json.loads(predicted("runpod-async", "seconds=0").stdout) == {"slept": 0.0}


def test_example_runpod_generator():
    assert json.loads(predicted("runpod-generator", "text=the tide").stdout) == ["THE", "TIDE"]


def test_example_runpod_async_generator():
    assert json.loads(predicted("runpod-async-generator", "count=2").stdout) == [{"number": 0}, {"number": 1}]
    assert "count should be <class 'int'>" in predicted("runpod-async-generator", "count=x").stderr

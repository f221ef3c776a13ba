"""What the code and the `cog.yaml` of a model declare, and what the server makes of it."""

import pytest
import yaml
from environment import MODELS
from launch import start_tidegate
from waiting import wait_until

LENIENT = """
from typing import Any, Optional
from cog import BasePredictor, Input

class Predictor(BasePredictor):
    def predict(
        self,
        x: str = Input(default=None),
        maybe: Optional[str] = "default",
    ) -> Any:
        yield x
        yield maybe
"""


def folder(path, code, **config):
    """A model folder with this code in `predict.py`."""
    path.mkdir(exist_ok=True)
    (path / "cog.yaml").write_text(yaml.safe_dump(config or {"predict": "predict.py:Predictor"}))
    (path / "predict.py").write_text(code)
    return path


class TestLenientModel:
    @pytest.fixture(scope="class")
    @classmethod
    def lenient(cls, tmp_path_factory):
        model = folder(tmp_path_factory.mktemp("models") / "lenient", LENIENT)
        server = start_tidegate(model, tmp_path_factory.mktemp("server"), flags=("--workers", "2"))
        yield server
        server.stop()

    @pytest.mark.parametrize("input", [{}, {"x": None}, {"maybe": None}, {"x": None, "maybe": None}], ids=str)
    def test_null_is_the_same_as_no_value(self, lenient, input):
        assert lenient.predict(input).json["output"] == [None, "default"]

    def test_null_is_the_same_as_no_value_on_replicates_api(self, lenient):
        body = {"input": {"x": None, "maybe": None}}
        reply = lenient.post("/v1/models/local/lenient/predictions", body, headers={"Prefer": "wait"})
        assert (reply.status, reply.json["output"]) == (201, [None, "default"])

    def test_the_schema_is_that_of_cog(self, lenient):
        document = lenient.get("/openapi.json").json
        assert document["components"]["schemas"]["Input"]["required"] == ["x"]
        assert [key for key in document if key.startswith("x-")] == []

    def test_one_warning_says_where_the_default_is(self, lenient):
        warnings = [line for line in lenient.log().splitlines() if "Optional" in line]
        assert len(warnings) == 1, warnings
        assert "WARN" in warnings[0] and "`x` (predict.py:8)" in warnings[0]

    def test_a_generator_that_declares_no_iterator_can_be_streamed(self, lenient):
        events = lenient.stream({"x": "a"}).rest()
        assert [event.data["chunk"] for event in events if event.name == "output"] == ["a", "default"]
        assert events[-1].data["output"] == ["a", "default"]


@pytest.mark.parametrize("model", ["function_gen", "function_agen"])
def test_generators_without_the_decorator_can_be_streamed(shared_server, model):
    events = shared_server(model).stream().rest()
    assert events[0].name == "start"
    chunks = [event.data["chunk"] for event in events if event.name == "output"]
    assert chunks == events[-1].data["output"] and len(chunks) == 2


def test_schema_and_versions_are_known_before_the_setup_ends(start_server, gate):
    server = start_server("setup_slow", env={"SETUP_GATE": str(gate)}, until=("STARTING",))
    wait_until(lambda: server.get("/openapi.json").status == 200, "the schema")
    document = server.get("/openapi.json").json
    versions = server.get("/v1/models/local/setup_slow/versions").json["results"]
    latest = server.get("/v1/models/local/setup_slow").json["latest_version"]
    assert [version["openapi_schema"] for version in (*versions, latest)] == [document, document]
    assert server.health()["status"] == "STARTING"


TRAINER = """
class Trainer:
    def setup(self):
        print("prepared")

    def train(self, epochs: int, data: str = "d") -> str:
        return f"{data} {epochs}"
"""


@pytest.mark.parametrize(
    ("code", "ref"),
    [
        (TRAINER, "predict.py:Trainer"),
        (
            "def train(epochs: int, data: str = 'd') -> str:\n    return f'{data} {epochs}'\n",
            "predict.py:train",
        ),
    ],
    ids=["class", "function"],
)
def test_a_folder_with_only_train_is_served_in_train_mode(start_server, tmp_path, code, ref):
    server = start_server(folder(tmp_path / "trainer", code, train=ref))
    assert "trainings_url" in server.get("/").json
    for path in ("/trainings", "/predictions"):
        assert server.predict({"epochs": 2}, path=path).json["output"] == "d 2"
        assert server.post(path, {"input": {}}).status == 422


def test_the_environment_of_the_model_applies_to_the_server(start_server, tmp_path, gate):
    config = {
        "predict": "predict.py:Predictor",
        "environment": [
            "COG_MAX_CONCURRENCY=2",
            "COG_STREAM_HISTORY_CAPACITY=1",
            f"GATE={gate}",
        ],
    }
    code = """
import asyncio, os
from cog import streaming
class Predictor:
    @streaming
    async def predict(self) -> list[str]:
        yield "a"
        while not os.path.exists(os.environ["GATE"]):
            await asyncio.sleep(0.01)
        yield "b"
"""
    server = start_server(folder(tmp_path / "configured", code, **config))
    for id in ("a", "b"):
        server.start(id=id)
        wait_until(lambda id=id: server.snapshot(id).get("output"), f"the first chunk of {id}")
    assert server.post("/predictions", {"input": {}}).status == 409, "two slots"
    assert [event.name for event in server.stream(id="a").rest()] == ["error"], "one event is kept"


def test_the_setup_timeout_in_the_environment_of_the_model(start_server, tmp_path, gate):
    model = tmp_path / "slow"
    code = (MODELS / "setup_slow" / "predict.py").read_text()
    environment = {"COG_SETUP_TIMEOUT": 1, "SETUP_GATE": str(gate)}
    folder(model, code, predict="predict.py:Predictor", environment=environment)
    health = start_server(model).wait_health("SETUP_FAILED")
    assert "timed out" in health["setup"]["logs"]


def test_the_environment_of_the_server_takes_precedence(start_server, tmp_path, gate):
    code = "import asyncio\nasync def predict(gate: str) -> str:\n    await asyncio.sleep(3600)\n"
    environment = {"COG_MAX_CONCURRENCY": 2}
    model = folder(tmp_path / "one", code, predict="predict.py:predict", environment=environment)
    server = start_server(model, env={"COG_MAX_CONCURRENCY": "1"})
    server.start({"gate": str(gate)}, id="only")
    assert server.post("/predictions", {"input": {"gate": ""}}).status == 409
    server.cancel("only")


@pytest.mark.parametrize(
    ("parameter", "problem"),
    [
        ("x: str = Input(accept='text/plain')", "accept is only valid on Path or File inputs"),
        ("x: int = Input(default=0, ge=1)", "must be at minimum 1"),
    ],
)
def test_contradictory_inputs_are_rejected_with_file_and_line(tidegate, tmp_path, parameter, problem):
    code = f"from cog import Input\ndef predict({parameter}) -> str: ...\n"
    model = folder(tmp_path / "wrong", code, predict="predict.py:predict")
    for command in ("schema", "predict"):
        done = tidegate(command, model)
        assert done.returncode == 1
        assert problem in done.stderr and "predict.py:2" in done.stderr

"""Schema tests beyond the type table: names, files, errors, decorators, training, the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from schema_model import Model, components, predictor
from tidegate.schema import build


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


# Names


@pytest.mark.parametrize(
    ("imports", "annotation", "expected"),
    [
        ("import cog", "cog.Path", {"type": "string", "format": "uri"}),
        ("import cog as c", "c.Path", {"type": "string", "format": "uri"}),
        ("from cog import Path as P", "P", {"type": "string", "format": "uri"}),
        ("from pathlib import Path", "Path", {"type": "string", "format": "uri"}),
        ("from cog import *", "Path", {"type": "string", "format": "uri"}),
        ("import typing as t", "t.List[int]", {"type": "array", "items": {"type": "integer"}}),
        ("from typing import Union as U", "U[int, None]", {"type": "integer", "nullable": True}),
        (
            "from __future__ import annotations",
            "'int | None'",
            {"type": "integer", "nullable": True},
        ),
        ("Ratio = float", "Ratio", {"type": "number"}),
        ("from typing import NewType\nId = NewType('Id', str)", "Id", {"type": "string"}),
        ("try:\n  from typing import Any\nexcept ImportError:\n  pass", "Any", {"type": "object"}),
    ],
)
def test_names_are_resolved_to_their_type(
    model: Model, imports: str, annotation: str, expected: dict
) -> None:
    source = f"{imports}\nclass Predictor:\n  def predict(self, x: {annotation}) -> str: ...\n"
    found = model.property(source)
    assert found == {"title": "X", "x-order": 0, **expected}


def test_input_is_recognised_under_an_alias(model: Model) -> None:
    source = "from cog import Input as I\ndef predict(x: int = I(default=2)) -> str: ...\n"
    model.file("predict.py", source)
    schema = build(model.folder, "predict.py:predict")
    assert components(schema)["Input"]["properties"]["x"]["default"] == 2


def test_a_class_of_the_model_shadows_a_known_name(model: Model) -> None:
    error = model.error("class Path: ...\nclass Predictor:\n  def run(self, x: Path) -> str: ...\n")
    assert "unsupported type: Path" in error.problem


# Defaults and choices


@pytest.mark.parametrize(
    ("head", "expression", "expected"),
    [
        ("A = ['a']; B = ('b',)", "A + B", ["a", "b"]),
        ("D = {'k': 1, 'l': 2}", "list(D.keys())", ["k", "l"]),
        ("D = {'k': 'v'}", "list(D.values())", ["v"]),
        ("A = ['b']", "['a', *A]", ["a", "b"]),
        ("D = {'l': 1, 'k': 2}", "sorted(D)", ["k", "l"]),
        ("from options import SIZES", "SIZES", ["s", "m"]),
    ],
)
def test_choices_may_be_combined_from_constants(
    model: Model, head: str, expression: str, expected: list[str]
) -> None:
    model.file("options.py", "SIZES = ['s', 'm']\n")
    schema = model.build(predictor(f"x: str = Input(choices={expression})", head=head))
    assert components(schema)["x"]["enum"] == expected


def test_choices_that_need_running_code_are_rejected(model: Model) -> None:
    error = model.error(predictor("x: str = Input(choices=load())"))
    assert "parameter 'x': choices `load()` are not known" in error.problem


# What the server must know besides the document


@pytest.mark.parametrize("default", ["None", "Input(default=None)", "Input(default=NOTHING)"])
def test_a_default_of_none_makes_an_input_optional_for_the_server_only(model: Model, default: str) -> None:
    schema = model.build(
        predictor(f"x: str = {default}, y: int = Input(default=None)", head="NOTHING = None")
    )
    assert components(schema)["Input"]["required"] == ["x", "y"], "as in Cog"
    assert schema.hints["optional"] == {"Input": ["x", "y"]}
    (warning,) = schema.hints["warnings"]
    assert "`x` (predict.py:4), `y` (predict.py:4)" in warning and "Optional[...]" in warning
    assert "x-tidegate" not in schema.document
    assert schema.document_with_hints()["x-tidegate"] == schema.hints


def test_the_warning_about_a_default_of_none_has_the_lines_of_predictions_and_trainings(model: Model) -> None:
    source = predictor("x: str = None") + "\ndef train(\n    y: int,\n    x: str = None\n) -> str: ...\n"
    schema = model.build(source, train="predict.py:train")
    (warning,) = schema.hints["warnings"]
    assert warning.startswith("`x` (predict.py:4), `x` (predict.py:8): the default is None")


@pytest.mark.parametrize(
    "parameter",
    [
        "x: str",
        "x: str = Input()",
        "x: str = Input(default=load())",
        "x: str = 'a'",
        "x: str | None = None",
        "x: Secret = None",
    ],
)
def test_other_inputs_need_no_hints(model: Model, parameter: str) -> None:
    schema = model.build(predictor(parameter))
    assert schema.hints == {}
    assert schema.document_with_hints() == schema.document


@pytest.mark.parametrize(
    ("body", "returns", "hints"),
    [
        ("yield 'a'", "list[str]", {"yields": True}),
        ("x = yield from ()", "Any", {"yields": True}),
        ("yield 'a'", "Iterator[str]", {}),
        ("if True:\n        yield 1", "list", {"yields": True}),
        ("def inner(): yield\n    return inner", "Any", {}),
        ("return (lambda: (yield))", "Any", {}),
    ],
)
def test_a_generator_is_known_to_the_server(model: Model, body: str, returns: str, hints: dict) -> None:
    source = f"from typing import Any, Iterator\ndef predict() -> {returns}:\n    {body}\n"
    assert model.build(source, "predict.py:predict").hints == hints


def test_an_async_generator_is_known_to_the_server(model: Model) -> None:
    source = "async def predict() -> list:\n    yield 1\n"
    assert model.build(source, "predict.py:predict").hints == {"yields": True}


def test_a_model_may_have_only_a_training_function(model: Model) -> None:
    source = "class Trainer:\n  def train(self, epochs: int) -> str: ...\n"
    schema = model.build(source, "predict.py:Trainer", "predict.py:Trainer")
    inputs = [components(schema)[name]["properties"] for name in ("Input", "TrainingInput")]
    assert inputs[0] == inputs[1] and list(inputs[0]) == ["epochs"]


def test_optional_choices_are_nullable(model: Model) -> None:
    prop = model.property(predictor("x: str | None = Input(choices=['a'], default=None)"))
    assert prop == {
        "allOf": [{"$ref": "#/components/schemas/x"}],
        "default": None,
        "nullable": True,
        "x-order": 0,
    }


@pytest.mark.parametrize(
    ("head", "default", "expected"),
    [
        ("N = 4", "Input(default=N)", 4),
        ("N = -4", "N", -4),
        ("S = [1, 2]", "Input(default=S[1])", 2),
        ("", "7.0", 7),
        ("", "'a\\nb'", "a\nb"),
        ("", "('a'\n  'b')", "ab"),
    ],
)
def test_default_is_resolved_without_running_code(
    model: Model, head: str, default: str, expected: object
) -> None:
    found = model.property(predictor(f"x: dict = {default}", head=head))["default"]
    assert (found, type(found)) == (expected, type(expected))


def test_input_default_that_needs_running_code_makes_the_input_required(model: Model) -> None:
    schema = model.build(predictor("x: str = Input(default=pick())"))
    assert components(schema)["Input"]["required"] == ["x"]


def test_default_factory_is_rejected(model: Model) -> None:
    error = model.error(predictor("x: list[str] = Input(default_factory=list)"))
    assert "`default_factory` has no value" in error.problem


def test_adjacent_strings_in_a_description_are_joined(model: Model) -> None:
    prop = model.property(predictor("x: str = Input(description='one ' 'two')"))
    assert prop["description"] == "one two"


def test_input_may_be_shared_through_a_class(model: Model) -> None:
    head = dedent("""\
        class Inputs:
            steps = Input(default=3, ge=1)
            @staticmethod
            def image(default=None, description="an image"):
                return Input(default=default, description=description)
        """)
    parameters = "a: int = Inputs.steps, b: Path | None = Inputs.image(description='mine')"
    properties = components(model.build(predictor(parameters, head=head)))["Input"]["properties"]
    assert (properties["a"]["default"], properties["a"]["minimum"]) == (3, 1)
    assert (properties["b"]["default"], properties["b"]["description"]) == (None, "mine")


# Parameters


def test_parameters_have_kind_list_and_optional(model: Model) -> None:
    schema = model.build(
        predictor(
            "a: int, b: Path, c: list[Path], d: File | None, e: Secret = None, f: list[str] | None = None"
        )
    )
    found = {name: (p.kind, p.is_list, p.optional) for name, p in schema.inputs.items()}
    assert found == {
        "a": ("plain", False, False),
        "b": ("path", False, False),
        "c": ("path", True, False),
        "d": ("file", False, True),
        "e": ("secret", False, True),
        "f": ("plain", True, True),
    }


def test_keyword_only_parameters_keep_their_order(model: Model) -> None:
    schema = model.build(predictor("a: int, *, b: int = 1, c: str"))
    assert [p["x-order"] for p in components(schema)["Input"]["properties"].values()] == [0, 1, 2]
    assert components(schema)["Input"]["required"] == ["a", "c"]


def test_list_of_dicts_with_types_is_a_list_of_objects(model: Model) -> None:
    prop = model.property(predictor("x: list[dict[str, int]]"))
    assert prop["items"] == {"type": "object"}


# Outputs


def test_output_model_may_live_in_a_sibling_module(model: Model) -> None:
    model.file("schemas.py", "from pydantic import BaseModel\nclass Result(BaseModel):\n  n: int\n")
    output = model.output(predictor("", returns="Result", head="from schemas import Result"))
    assert output["properties"] == {"n": {"title": "N", "type": "integer"}}


@pytest.mark.parametrize(
    ("file", "head", "returns"),
    [
        ("app/types.py", "from app.types import Result as R", "R"),
        ("app/types.py", "import app.types", "app.types.Result"),
        ("app/types.py", "from app import types as t", "t.Result"),
        ("shapes.py", "from .shapes import Result", "list[Result]"),
        ("app/__init__.py", "from app import Result", "Result"),
    ],
)
def test_sibling_modules_are_found_however_they_are_imported(
    model: Model, file: str, head: str, returns: str
) -> None:
    model.file(file, "import pydantic\nclass Result(pydantic.BaseModel):\n  n: int\n")
    output = model.output(predictor("", returns=returns, head=head))
    assert output.get("items", output)["required"] == ["n"]


def test_circular_imports_are_resolved(model: Model) -> None:
    model.file("a.py", "from b import Thing\n")
    model.file("b.py", "from a import Thing\n")
    error = model.error(predictor("x: Thing", head="from a import Thing"))
    assert "cannot resolve type 'Thing'" in error.problem


def test_output_model_inherits_fields(model: Model) -> None:
    head = "class A(BaseModel):\n  a: int\nclass B(A):\n  b: str = 'x'\n"
    output = model.output(predictor("", returns="B", head=head))
    assert (list(output["properties"]), output["required"]) == (["a", "b"], ["a"])


def test_recursive_output_model_has_a_finite_schema(model: Model) -> None:
    output = model.output(predictor("", returns="T", head="class T(BaseModel):\n  kids: list['T']\n"))
    assert output["properties"]["kids"]["items"] == {"type": "object"}


@pytest.mark.parametrize(
    ("body", "required"),
    [
        ("(TypedDict, total=False):\n  a: int\n  b: Required[str]", ["b"]),
        ("(TypedDict):\n  a: int\n  b: NotRequired[str]", ["a"]),
        ("(TypedDict):\n  a: int\n  b: Optional[str]", ["a", "b"]),
    ],
)
def test_typed_dict_keys_are_required_as_declared(model: Model, body: str, required: list[str]) -> None:
    head = (
        "from typing import Optional\n"
        f"from typing_extensions import NotRequired, Required, TypedDict\nclass T{body}\n"
    )
    assert model.output(predictor("", returns="T", head=head))["required"] == required


def test_dataclass_output_is_an_object(model: Model) -> None:
    head = "import dataclasses\n@dataclasses.dataclass\nclass D:\n  a: int\n  b: int = 2\n"
    assert model.output(predictor("", returns="D", head=head))["required"] == ["a"]


# Functions and decorators


def test_reference_without_a_name_prefers_runner(model: Model) -> None:
    source = """\
        class Predictor:
            def predict(self, p: str) -> str: ...
        class Runner:
            def run(self, r: str) -> str: ...
        """
    assert list(model.build(source).inputs) == ["r"]


def test_predict_is_found_in_a_base_class_of_another_file(model: Model) -> None:
    model.file("base.py", "N = 3\nclass Base:\n  def predict(self, n: int = N) -> str: ...\n")
    assert list(model.build("from base import Base\nclass Predictor(Base): ...\n").inputs) == ["n"]


def test_own_predict_overrides_the_inherited_one(model: Model) -> None:
    source = """\
        class Base:
            def predict(self, old: str) -> str: ...
        class Predictor(Base):
            def predict(self, new: str) -> str: ...
        """
    assert list(model.build(source).inputs) == ["new"]


def test_run_and_predict_together_are_rejected(model: Model) -> None:
    error = model.error("class Runner:\n  def run(self) -> str: ...\n  def predict(self) -> str: ...\n")
    assert "Predictor must define either run() or predict(), not both" in str(error)


def test_class_without_run_and_predict_is_rejected(model: Model) -> None:
    error = model.error("class Predictor:\n  def predcit(self) -> str: ...\n")
    assert error.problem == "run or predict method not found: Predictor"


@pytest.mark.parametrize("decorator", ["streaming", "streaming()", "cog.streaming", "c.streaming()"])
def test_streaming_is_read_from_the_decorator(model: Model, decorator: str) -> None:
    schema = model.build(
        f"import cog\nimport cog as c\nfrom cog import streaming\n"
        f"class Runner:\n  @{decorator}\n  def run(self) -> str: ...\n"
    )
    assert schema.streaming is True
    assert schema.document["paths"]["/predictions"]["post"]["x-cog-streaming"] is True


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [("@concurrent(max=4)", 4), ("@cog.concurrent(max=MAX)", 8), ("@concurrent", 1), ("", None)],
)
def test_concurrency_is_read_from_the_decorator(model: Model, decorator: str, expected: int | None) -> None:
    schema = model.build(
        f"import cog\nfrom cog import concurrent\nMAX = 8\n"
        f"class Runner:\n  {decorator}\n  async def run(self) -> str: ...\n"
    )
    assert (schema.concurrency, schema.streaming) == (expected, False)


# Training


def test_training_has_its_own_inputs_and_paths(model: Model) -> None:
    source = """\
        from cog import Input, Path
        class Predictor:
            def predict(self, p: str) -> str: ...
            def train(self, data: Path, mode: str = Input(choices=["a"])) -> Path: ...
        """
    schema = model.build(source, "predict.py:Predictor", "predict.py:Predictor")
    assert {name: p.kind for name, p in schema.training_inputs.items()} == {
        "data": "path",
        "mode": "plain",
    }
    assert "/trainings/{training_id}/cancel" in schema.document["paths"]
    assert components(schema)["mode"]["enum"] == ["a"]


def test_choices_of_training_do_not_replace_those_of_predict(model: Model) -> None:
    source = """\
        from cog import Input
        def predict(mode: str = Input(choices=["p"])) -> str: ...
        def train(mode: str = Input(choices=["t"])) -> str: ...
        """
    schemas = components(model.build(source, "predict.py:predict", "predict.py:train"))
    ref = schemas["TrainingInput"]["properties"]["mode"]["allOf"][0]["$ref"]
    assert schemas["mode"]["enum"] == ["p"]
    assert schemas[ref.rpartition("/")[2]]["enum"] == ["t"]


def test_model_without_training_has_no_training_inputs(model: Model) -> None:
    schema = model.build(predictor("x: str"))
    assert (schema.training_inputs, "TrainingInput" in components(schema)) == ({}, False)


# Errors


def test_error_names_problem_remedy_line_and_parameter(model: Model) -> None:
    error = model.error(predictor("x: Literal['a']", head="from typing import Literal\n"))
    assert str(error) == (
        "unsupported type: Literal[...] is not a supported input type; "
        "use `x: str = Input(choices=[...])` (predict.py:5, parameter `x`)"
    )


def test_error_in_an_output_model_names_the_field(model: Model) -> None:
    model.file("shapes.py", "from cog import BaseModel\nclass R(BaseModel):\n  t: set[int]\n")
    error = model.error(predictor("", returns="R", head="from shapes import R"))
    assert (error.file, error.line, error.parameter) == ("shapes.py", 3, "R.t")


def test_missing_file_suggests_a_similar_name(model: Model) -> None:
    error = model.error("", "predit.py:Predictor")
    assert "`predit.py`" in error.problem
    assert "did you mean `predict.py`?" in error.remedy


def test_missing_name_suggests_a_similar_one(model: Model) -> None:
    error = model.error(predictor("x: str"), "predict.py:Predicter")
    assert "did you mean `Predictor`?" in str(error)


def test_syntax_error_names_its_line(model: Model) -> None:
    error = model.error("x = 1\ndef (:\n")
    assert (error.file, error.line) == ("predict.py", 2)
    assert "is not valid Python" in error.problem


def test_building_runs_no_user_code(model: Model) -> None:
    model.build(predictor("x: str", head="raise SystemExit('imported')"))


# Files


def test_file_with_another_encoding_is_parsed(model: Model) -> None:
    source = "# -*- coding: latin-1 -*-\nclass Runner:\n  def run(self, x: str = 'é') -> str: ...\n"
    (model.folder / "run.py").write_bytes(source.encode("latin-1"))
    schema = build(model.folder, "run.py")
    assert components(schema)["Input"]["properties"]["x"]["default"] == "é"


# The command


def command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tidegate.schema", *map(str, args)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=30)


def test_command_prints_the_document(model: Model) -> None:
    schema = model.build(predictor("x: str"))
    done = command(model.folder, "--predict", "predict.py:Predictor")
    assert (done.returncode, json.loads(done.stdout)) == (0, schema.document)


def test_command_reports_an_error_on_stderr(model: Model) -> None:
    model.file("predict.py", predictor("x: bytes"))
    done = command(model.folder, "--predict=predict.py:Predictor")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unsupported type: bytes" in done.stderr
    assert "Traceback" not in done.stderr


def test_command_rejects_unknown_arguments(model: Model) -> None:
    assert command(model.folder, "--what").returncode == 64


def test_importing_the_builder_is_cheap() -> None:
    code = (
        "import sys; before = set(sys.modules); import tidegate.schema.__main__;"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    heavy = {"inspect", "dataclasses", "typing", "pathlib", "json", "argparse", "difflib"}
    assert heavy.isdisjoint(done.stdout.split())

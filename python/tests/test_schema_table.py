"""Every annotation in Cog's type table gives the same schema, or the same error, as in Cog.

`data/cog_types.txt` was produced by Cog's own generator: `annotation => schema`, or
`annotation => ERR message`; inputs first, outputs after `---- outputs`. An input that only Cog's server
refuses, when it loads the model, has the server's message.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tidegate.schema import SchemaError, build

DATA = Path(__file__).parent / "data"

HEADER = """\
import datetime, os, pathlib, typing
import cog
from enum import Enum
from typing import (Annotated, Any, AsyncIterator, Dict, Generator, Iterable, Iterator, List,
                    Literal, Optional, Tuple, TypedDict, Union)
from typing_extensions import NotRequired
from cog import (AsyncConcatenateIterator, BaseModel, BasePredictor, ConcatenateIterator, File,
                 Input, Opaque, Path, Secret)
CH = ['a', 'b']
class M(BaseModel):
    x: int
    y: Optional[str] = None
class N(BaseModel):
    m: M
    l: list[M]
class TD(TypedDict):
    a: int
    b: NotRequired[str]
class E(Enum):
    A = 'a'
"""


def rows() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Split the table into its input and output rows."""
    inputs: list[tuple[str, str]] = []
    outputs: list[tuple[str, str]] = []
    section = inputs
    for line in (DATA / "cog_types.txt").read_text().splitlines():
        if line.startswith("----"):
            section = outputs
        elif " => " in line:
            left, _, right = line.partition(" => ")
            section.append((left, right))
    return inputs, outputs


INPUTS, OUTPUTS = rows()


def schemas(folder: Path, signature: str) -> dict[str, dict]:
    """Build a predictor with this signature and return its components."""
    body = f"class Predictor(BasePredictor):\n    def predict({signature}: ...\n"
    (folder / "predict.py").write_text(HEADER + body)
    return build(folder, "predict.py:Predictor").document["components"]["schemas"]


def test_the_table_was_read_completely() -> None:
    assert (len(INPUTS), len(OUTPUTS)) == (98, 40)


@pytest.mark.parametrize(("parameter", "expected"), INPUTS, ids=[row[0] for row in INPUTS])
def test_input_is_described_as_cog_does(tmp_path: Path, parameter: str, expected: str) -> None:
    signature = f"self, {parameter}) -> str"
    if expected.startswith("ERR "):
        with pytest.raises(SchemaError) as caught:
            schemas(tmp_path, signature)
        assert expected.removeprefix("ERR ") in str(caught.value)
        assert caught.value.remedy
        assert f"predict.py:{HEADER.count(chr(10)) + 2}" in str(caught.value)
        return
    components = schemas(tmp_path, signature)
    name = parameter.split(":")[0].split("=")[0].strip()
    actual = {"req": components["Input"].get("required")}
    if name in components["Input"]["properties"]:
        actual[name] = components["Input"]["properties"][name]
    if name in components:
        actual["enum"] = components[name]
    assert_same_json(actual, json.loads(expected))


@pytest.mark.parametrize(("annotation", "expected"), OUTPUTS, ids=[row[0] for row in OUTPUTS])
def test_output_is_described_as_cog_does(tmp_path: Path, annotation: str, expected: str) -> None:
    signature = "self)" if annotation == "<none>" else f"self) -> {annotation}"
    if expected.startswith("ERR "):
        with pytest.raises(SchemaError) as caught:
            schemas(tmp_path, signature)
        assert expected.removeprefix("ERR ") in str(caught.value)
        assert caught.value.remedy
        assert f"predict.py:{HEADER.count(chr(10)) + 2}" in str(caught.value)
        return
    assert_same_json(schemas(tmp_path, signature)["Output"], json.loads(expected))


@pytest.mark.parametrize(
    ("name", "predict", "train"),
    [("a", "Predictor", None), ("b", "Runner", None), ("c", "predict", "train")],
)
def test_whole_document_equals_cogs(name: str, predict: str, train: str | None) -> None:
    examples = DATA / "schema_examples"
    expected = json.loads((examples / f"{name}.json").read_text())
    train_ref = f"{name}.py:{train}" if train else None
    document = build(examples, f"{name}.py:{predict}", train_ref).document
    assert_same_json(document, expected)
    declared = list(expected["components"]["schemas"]["Input"]["properties"])
    assert list(document["components"]["schemas"]["Input"]["properties"]) == declared


def assert_same_json(actual: object, expected: object) -> None:
    """Compare as JSON text: Python's `==` would take `True` for `1` and `1.0` for `1`."""
    assert json.dumps(actual, sort_keys=True) == json.dumps(expected, sort_keys=True)

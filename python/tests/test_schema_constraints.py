"""Keywords of `Input(...)` that contradict each other or the type of the input, as in Cog."""

from __future__ import annotations

from pathlib import Path

import pytest
from schema_model import Model, predictor


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


@pytest.mark.parametrize(
    ("parameter", "problem"),
    [
        ("x: int = Input(default=0, ge=1)", "must be at minimum 1"),
        ("x: float = Input(default=2.5, le=2)", "must be at maximum 2"),
        ("x: int | None = Input(default=0, ge=1)", "must be at minimum 1"),
        ("x: list[int] = Input(default=[5, 0], ge=1)", "must be at minimum 1"),
        ("x: str = Input(default='a', min_length=2)", "default conflicts with min_length=2"),
        ("x: str = Input(default='abc', max_length=2)", "default conflicts with max_length=2"),
        ("x: str = Input(default='A', regex='^[a-z]+$')", "default not a regex match"),
        ("x: str = Input(default='xby', regex='b')", "default not a regex match"),
        ("x: list[str] = Input(default=['ab', 'ba'], regex='a')", "default not a regex match"),
        ("x: str = Input(default='a', regex='(?P<')", "regex `(?P<` is not valid"),
        ("x: int = Input(default='5', ge=6)", "must be at minimum 6"),
        ("x: int = Input(default='x')", "failed to normalize value as int"),
        ("x: int = 'x'", "failed to normalize value as int"),
        ("x: int = Input(default=1.5)", "failed to normalize value as int"),
        ("x: int | None = Input(default=1.5)", "failed to normalize value as int"),
        ("x: int = Input(default={})", "failed to normalize value as int"),
        ("x: float = Input(default='x')", "failed to normalize value as float"),
        ("x: bool = Input(default='yes')", "failed to normalize value as bool"),
        ("x: bool = Input(default=2)", "failed to normalize value as bool"),
        ("x: str = 1", "failed to normalize value as str"),
        ("x: str = Input(default=True)", "failed to normalize value as str"),
        ("x: list[int] = Input(default=5)", "failed to normalize value as list"),
        ("x: list[int] = Input(default=['x'])", "failed to normalize value as int"),
        ("x: Path = Input(default=5)", "failed to normalize value as Path"),
        ("x: int | str = Input(default=1.5)", "failed to normalize value as any type of the union"),
        ("x: int | float = Input(default=True)", "failed to normalize value as any type of the union"),
        ("x: int | list[int] = Input(default=['x'])", "failed to normalize value as any type"),
        ("x: str = Input(ge=1)", "incompatible input type for ge/le: x: str"),
        ("x: str = Input(default=None, le=1)", "incompatible input type for ge/le: x: str"),
        ("x: bool = Input(default=True, le=0)", "incompatible input type for ge/le: x: bool"),
        ("x: dict = Input(ge=1)", "incompatible input type for ge/le: x: dict"),
        ("x: list[str] = Input(ge=1)", "incompatible input type for ge/le: x: list[str]"),
        ("x: int | float = Input(ge=1)", "incompatible input type for ge/le: x: int | float"),
        ("x: int = Input(min_length=1)", "incompatible input type for min_length/max_length: x: int"),
        ("x: Path = Input(max_length=1)", "incompatible input type for min_length/max_length: x: Path"),
        ("x: float = Input(regex='a')", "incompatible input type for regex: x: float"),
        ("x: Secret = Input(regex='a')", "incompatible input type for regex: x: Secret"),
        ("x: str = Input(default='c', choices=['a', 'b'])", "must be one of ['a', 'b']"),
        ("x: int = Input(default=3, choices=[1, 2])", "must be one of [1, 2]"),
        ("x: list[str] = Input(default=['a', 'c'], choices=['a', 'b'])", "must be one of ['a', 'b']"),
        ("x: str = Input(default=N, choices=['a', 'b'])", "must be one of ['a', 'b']"),
        (
            "x: int = Input(choices=['1', '2'])",
            "not all choices have the same type as input 'x': '1' is not int",
        ),
        ("x: str = Input(default='a', choices=['a', 1])", "'x': 1 is not str"),
        ("x: int = Input(choices=[1, True])", "'x': True is not int"),
        ("x: list[str] = Input(choices=['a', 1])", "'x': 1 is not str"),
        ("x: str = Input(accept='text/plain')", "accept is only valid on Path or File inputs"),
        ("x: list[str] = Input(accept='text/plain')", "accept is only valid on Path or File inputs"),
    ],
)
def test_keywords_that_contradict_the_input_are_rejected(model: Model, parameter: str, problem: str) -> None:
    error = model.error(predictor(parameter, head="N = 'n'"))
    assert problem in error.problem
    assert error.remedy
    assert "predict.py:4, parameter `x`" in str(error)


@pytest.mark.parametrize(
    "parameter",
    [
        "x: int = Input(default=1, ge=1, le=1)",
        "x: str = Input(default='ab', min_length=2, max_length=2)",
        "x: str = Input(default='byx', regex='b')",
        "x: str = Input(regex='(?P<')",
        "x: int = Input(default='3', choices=[3, 4])",
        "x: int = '3'",
        "x: int = Input(default=1.0)",
        "x: int = Input(default=True)",
        "x: float = Input(default='1.5')",
        "x: float = 2",
        "x: bool = Input(default=1)",
        "x: dict = Input(default='x')",
        "x: list[int] = Input(default='35')",
        "x: list[int] = Input(default=['3'], ge=3)",
        "x: list[str] = Input(min_length=1)",
        "x: Secret = Input(default=5)",
        "x: int | str = Input(default='x')",
        "x: int | list[int] = Input(default=[1])",
        "x: str = Input(ge=None)",
        "x: str | None = Input(default=None, choices=['a', 'b'], min_length=2)",
        "x: str = Input(default=load(), choices=['a', 'b'])",
        "x: str = Input(default='a' 'b', regex='^ab$')",
        "x: Path = Input(accept='image/*')",
        "x: list[Path] | None = Input(accept='image/*', default=None)",
        "x: str = Input(accept=None)",
    ],
)
def test_keywords_that_agree_with_the_input_are_accepted(model: Model, parameter: str) -> None:
    model.build(predictor(parameter))

"""Returns one value of each kind that spec/cog.md §10 speaks of."""

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import os
import pathlib
import tempfile
import types
import uuid
from typing import Any

from cog import BaseModel, BasePredictor, Path, Secret


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Model(BaseModel):
    x: int
    y: str = "why"


class Holder(BaseModel):
    name: str
    file: Path


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Dumps:
    def model_dump(self) -> dict:
        return {"dumped": True}


class Dicts:
    def dict(self) -> dict:
        return {"dicted": True}


Pair = collections.namedtuple("Pair", "a b")


def a_file(name: str = "out.txt", content: bytes = b"content") -> Path:
    path = os.path.join(tempfile.mkdtemp(), name)
    with open(path, "wb") as file:
        file.write(content)
    return Path(path)


def opened(name: str) -> io.BufferedReader:
    return open(a_file(name), "rb")


KINDS = {
    "str": lambda: "text",
    "empty_str": lambda: "",
    "unicode": lambda: "héllo \U0001f30a \u0000 \u2028",
    "int": lambda: 7,
    "big_int": lambda: 10**30,
    "int64": lambda: 2**63 - 1,
    "uint64": lambda: 2**64 - 1,
    "negative": lambda: -(2**63),
    "float": lambda: 0.1,
    "whole_float": lambda: 3.0,
    "small_float": lambda: 1e-7,
    "large_float": lambda: 1e300,
    "bool": lambda: True,
    "none": lambda: None,
    "list": lambda: [1, "a", None, [2]],
    "empty_list": lambda: [],
    "list_of_one": lambda: ["only"],
    "tuple": lambda: (1, 2),
    "set": lambda: {1},
    "frozenset": lambda: frozenset([1]),
    "namedtuple": lambda: Pair(1, 2),
    "dict": lambda: {"a": 1, "nested": {"b": [1]}},
    "empty_dict": lambda: {},
    "int_keys": lambda: {1: "a", False: "b", None: "c", 1.5: "d"},
    "tuple_keys": lambda: {(1, 2): "a"},
    "ordered": lambda: collections.OrderedDict([("z", 1), ("a", 2)]),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
    "generator": lambda: (number for number in range(3)),
    "map": lambda: map(str, range(2)),
    "range": lambda: range(3),
    "iterator": lambda: iter([1, 2]),
    "model": lambda: Model(x=1),
    "list_of_models": lambda: [Model(x=1), Model(x=2, y="z")],
    "nested_model": lambda: {"m": Model(x=1)},
    "dataclass": lambda: Point(1, 2),
    "model_dump": Dumps,
    "dict_method": Dicts,
    "enum": lambda: Colour.RED,
    "int_enum": lambda: Number.ONE,
    "nested_enum": lambda: {"c": [Colour.RED]},
    "datetime": lambda: datetime.datetime(2024, 1, 2, 3, 4, 5),
    "datetime_utc": lambda: datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
    "date": lambda: datetime.date(2024, 1, 2),
    "time": lambda: datetime.time(1, 2),
    "timedelta": lambda: datetime.timedelta(1),
    "bytes": lambda: b"raw",
    "bytearray": lambda: bytearray(b"raw"),
    "decimal": lambda: decimal.Decimal("1.5"),
    "fraction": lambda: fractions.Fraction(1, 2),
    "uuid": lambda: uuid.UUID(int=0),
    "complex": lambda: 1j,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "nested_nan": lambda: {"a": [float("-inf")]},
    "surrogate": lambda: "\ud800",
    "object": lambda: types.SimpleNamespace(a=1),
    "function": lambda: len,
    "class": lambda: int,
    "pathlib": lambda: pathlib.Path(str(a_file())),
    "path": lambda: a_file(),
    "path_png": lambda: a_file("pic.png", b"\x89PNG"),
    "path_json": lambda: a_file("data.json", b"{}"),
    "path_unknown": lambda: a_file("data.zzz"),
    "path_bare": lambda: a_file("data"),
    "path_empty": lambda: a_file("empty.txt", b""),
    "path_spaces": lambda: a_file("a b é.txt"),
    "paths": lambda: [a_file("a.txt", b"a"), a_file("b.txt", b"b"), a_file("c.txt", b"c")],
    "tuple_of_paths": lambda: (a_file("a.txt", b"a"), a_file("b.txt", b"b")),
    "mixed": lambda: ["text", a_file("a.txt", b"a"), 3],
    "generator_of_paths": lambda: (a_file(f"{number}.txt", b"x") for number in range(2)),
    "handle": lambda: opened("h.txt"),
    "handles": lambda: [opened("h.txt"), opened("i.txt")],
    "bytesio": lambda: io.BytesIO(b"bytes"),
    "stringio": lambda: io.StringIO("text"),
    "nested_stringio": lambda: {"s": io.StringIO("text")},
    "nested_path": lambda: {"file": a_file(), "n": 1},
    "nested_list_path": lambda: {"files": [a_file("a.txt", b"a"), a_file("b.txt", b"b")]},
    "list_of_dicts_path": lambda: [{"file": a_file()}],
    "model_path": lambda: Holder(name="n", file=a_file()),
    "list_of_lists_path": lambda: [[a_file()]],
    "missing_path": lambda: Path("/nonexistent/file.txt"),
    "directory": lambda: Path(tempfile.mkdtemp()),
    "nested_missing_path": lambda: {"file": Path("/nonexistent/file.txt")},
    "secret": lambda: Secret("shh"),
    "path_str": lambda: "/etc/hostname",
    "input_like": lambda: "http://example.invalid/x.png",
    "deep": lambda: [[[[[[[[1]]]]]]]],
}


class Predictor(BasePredictor):
    def predict(self, kind: str = "str") -> Any:
        return KINDS[kind]()

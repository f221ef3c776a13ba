"""Values that a model may return, and how they are encoded."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest


@pytest.fixture
def returning(serve):
    """Runs a model that returns an expression."""

    def run(expression: str, prelude: str = "", **kwargs):
        source = f"from typing import Any\n{prelude}\nclass Predictor:\n    def predict(self, folder: str = '') -> Any:\n        return {expression}\n"  # noqa: E501
        child = serve(source, **kwargs)
        outcome = child.run(folder=str(child.scratch))
        outcome.child = child
        return outcome

    return run


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{'a': [1, 2.5, True, None, 'é', (1, 2)]}", {"a": [1, 2.5, True, None, "é", [1, 2]]}),
        ("{1: 'a', None: 'b', True: 'c', 1.5: 'd'}", {"1": "c", "null": "b", "1.5": "d"}),
        ("10**30", 1e30),
        ("2**64 - 1", 2**64 - 1),
        ("-2**63", -(2**63)),
        ("[iter([1]), {2}, frozenset([3]), (x for x in [4])]", [[1], [2], [3], [4]]),
        ("None", None),
        ("__import__('collections').OrderedDict(a=1)", {"a": 1}),
        ("__import__('datetime').datetime(2026, 1, 2, 3)", "2026-01-02T03:00:00"),
        ("__import__('http').HTTPStatus(404)", 404),
        ("'\\x00\\u2028\"'", '\x00\u2028"'),
    ],
)
def test_values_become_json(returning, expression: str, expected: object) -> None:
    assert returning(expression).output == expected


def test_every_character_becomes_json_at_every_position(returning) -> None:
    # The encoder checks blocks of 32 bytes at once.
    characters = [chr(code) for code in range(0x80)] + ["é", "\u2028", "😀"]
    texts = ["a" * before + character + "b" * 40 for character in characters for before in (0, 1, 31, 32, 33)]
    texts += ["".join(characters) * 3, '"' * 100, "", "x" * 32, "x" * 33]
    outcome = returning(f"{texts!r}")
    assert outcome.output == texts


@pytest.mark.parametrize("size", [65_534, 65_535, 1_000_000, 5_000_000])
def test_large_texts_are_sent_and_received_unchanged(serve, size: int) -> None:
    child = serve(
        "class Predictor:\n    def predict(self, text: str) -> list:\n        return [text, text[::-1]]\n"
    )
    for text in ("x" * size, 'é"\n' * (size // 4), "short", "y" * size):
        assert child.run(text=text).output == [text, text[::-1]]


def test_models_and_enums_become_json(returning) -> None:
    prelude = """
import dataclasses, enum, typing
class Colour(str, enum.Enum):
    RED = "red"
@dataclasses.dataclass
class Inner:
    colour: Colour
    kind: typing.ClassVar[str] = "x"
class Pydantic2:
    def model_dump(self): return {"inner": Inner(Colour.RED)}
class Pydantic1:
    def dict(self): return {"v": 1}
Named = typing.NamedTuple("Named", [("a", int)])
"""
    outcome = returning("[Inner(Colour.RED), Pydantic2(), Pydantic1(), Colour.RED, Named(5)]", prelude)
    assert outcome.output == [{"colour": "red"}, {"inner": {"colour": "red"}}, {"v": 1}, "red", [5]]


def test_numpy_values_become_json(returning) -> None:
    pytest.importorskip("numpy")
    expression = "{'a': np.arange(3), 'b': np.float64(1.5), 'c': np.bool_(True), 'd': np.ones((1, 2), dtype='f4'), 'e': np.int8(3)}"  # noqa: E501
    assert returning(expression, "import numpy as np").output == {
        "a": [0, 1, 2],
        "b": 1.5,
        "c": True,
        "d": [[1.0, 1.0]],
        "e": 3,
    }


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("float('nan')", "`output` is nan, which JSON cannot express"),
        ("{'a': [float('-inf')]}", "`output.a[0]` is -inf, which JSON cannot express"),
        ("[b'x']", "`output[0]` is `bytes`, which has no JSON form"),
        (
            "{'p': __import__('decimal').Decimal(1)}",
            "`output.p` is `decimal.Decimal`, which has no JSON form",
        ),
        ("__import__('uuid').uuid4()", "`output` is `uuid.UUID`, which has no JSON form"),
        ("['\\ud800']", "`output[0]` contains a lone surrogate, which is not valid text"),
        ("{(1, 2): 3}", "`output` has a key of type `tuple`; JSON keys are strings"),
        ("object", "`output` is `type`, which has no JSON form"),
        ("10**400", "`output` is an integer too large for JSON readers"),
    ],
)
def test_values_without_a_json_form_fail_with_their_path(returning, expression: str, error: str) -> None:
    assert returning(expression).error == f"Prediction failed: Failed to serialize output: {error}"


@pytest.mark.parametrize(
    "prelude",
    [
        "v = []; v.append(v)",
        "v = []; v.extend([v, v])",
        "v = {}; v['x'] = {'y': v}",
        "v = []\nfor _ in range(100_000): v = [v]",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    a: object = None\n    b: object = None\nv = D(); v.a = v; v.b = v",  # noqa: E501
        "class M:\n    def model_dump(self): return {'a': M(), 'b': 1}\nv = M()",
    ],
)
def test_cyclic_and_very_deep_values_fail_only_their_job(returning, prelude: str) -> None:
    outcome = returning("v if folder else 'alive'", prelude)
    assert "contains itself" in outcome.error or "nested deeper than 200" in outcome.error
    assert outcome.child.run(folder="").output == "alive"


def test_an_exception_during_encoding_fails_the_job(returning) -> None:
    outcome = returning(
        "(1 / 0 for _ in [1]) and [1 / x for x in [1]] and M()",
        "class M:\n    def model_dump(self): raise KeyError('k')",
    )
    assert outcome.error == "Prediction failed: Failed to serialize output: KeyError: 'k'"


def test_a_returned_secret_is_masked(returning) -> None:
    assert returning("{'s': Secret('hush')}", "from cog import Secret").output == {"s": "**********"}


FILES = """
import io, pathlib
def make(folder, name, text):
    path = pathlib.Path(folder) / name
    path.write_text(text)
    return path
def opened(path, mode="rb"):
    return open(path, mode)
"""


def test_files_anywhere_in_the_output(returning) -> None:
    expression = "{'é': make(folder, 'a.png', 'A'), 'l': [opened(make(folder, 'b.txt', 'B')), io.BytesIO(b'C'), io.StringIO('D')]}"  # noqa: E501
    outcome = returning(expression, FILES)
    text = json.dumps(outcome.output, ensure_ascii=False, separators=(",", ":")).encode()
    assert [text[f["offset"] : f["offset"] + 2] for f in outcome.files] == [b'""'] * 4
    assert [Path(f["filename"]).read_text() for f in outcome.files] == ["A", "B", "C", "D"]
    assert [f["mime_type"] for f in outcome.files] == [
        "image/png",
        "text/plain",
        "application/octet-stream",
        "application/octet-stream",
    ]
    assert all(f["kind"] == "file_type" and os.path.isabs(f["filename"]) for f in outcome.files)
    assert outcome.files[0]["filename"].endswith("scratch/a.png"), "returned files are used in place"
    assert outcome.messages[-1].keys() == {"done"}
    assert stat.S_IMODE(os.stat(outcome.child.scratch / "job-1").st_mode) == 0o700


def test_an_open_file_is_sent_from_its_start(returning) -> None:
    prelude = FILES + "def written():\n    b = io.BytesIO(); b.write(b'all'); return b\n"
    outcome = returning("written()", prelude)
    assert Path(outcome.files[0]["filename"]).read_text() == "all"


@pytest.mark.parametrize(
    "expression", ["pathlib.Path(folder) / 'missing'", "pathlib.Path(folder)", "pathlib.Path('/dev/zero')"]
)
def test_missing_and_special_files_fail_the_job(returning, expression: str) -> None:
    assert returning(expression, FILES).error.startswith("Prediction failed: output file not found: /")


def test_yielded_files_are_copied_before_the_generator_continues(serve) -> None:
    child = serve("""
        import pathlib
        from typing import Iterator
        from cog import Path
        class Predictor:
            def predict(self, folder: str) -> Iterator[Path]:
                path = Path(folder) / "same.txt"
                for n in range(3):
                    path.write_text(str(n))
                    yield path
    """)
    outcome = child.run(folder=str(child.scratch))
    assert [Path(f["filename"]).read_text() for f in outcome.files] == ["0", "1", "2"]
    assert outcome.items == ["", "", ""]
    kinds = [next(iter(m)) for m in outcome.messages]
    assert kinds == ["file_output", "output"] * 3 + ["done"]


def test_an_output_too_large_for_a_frame_is_sent_as_a_file(serve) -> None:
    child = serve("""
        from typing import Iterator
        class Predictor:
            def predict(self) -> str:
                return "x" * (33 << 20)
    """)
    outcome = child.run()
    assert outcome.output is None
    (file,) = outcome.files
    assert file["kind"] == "oversized"
    assert len(json.loads(Path(file["filename"]).read_text())) == 33 << 20


def test_outputs_larger_than_the_socket_buffer_are_complete(serve) -> None:
    child = serve("""
        class Predictor:
            def predict(self, x: str) -> str:
                return x * 2
    """)
    text = "é" * (2 << 20)
    assert child.run(x=text).output == text * 2


def test_a_model_that_patches_json_does_not_break_us(returning) -> None:
    prelude = (
        "import json, builtins\njson.dumps = json.loads = lambda *a, **k: None\nbuiltins.isinstance_ = None"
    )
    assert returning("{'a': 2}", prelude).output == {"a": 2}


def test_a_closed_or_write_only_file_is_read_by_its_name(returning) -> None:
    prelude = FILES + (
        "def closed(p):\n    with open(p, 'w') as f:\n        f.write('c')\n    return f\n"
        "def writing(p):\n    f = open(p, 'w')\n    f.write('w')\n    return f\n"
    )
    outcome = returning("[closed(folder + '/c.txt'), writing(folder + '/w.txt')]", prelude)
    assert [Path(f["filename"]).read_text() for f in outcome.files] == ["c", "w"]


def test_a_mapping_with_every_attribute_is_not_a_file(serve) -> None:
    child = serve(
        """
        from typing import Any
        class Loose(dict):
            __getattr__ = dict.get
        class Predictor:
            def predict(self) -> Any:
                return Loose(a=1)
        """
    )
    assert child.run().output == {"a": 1}

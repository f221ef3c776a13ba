"""A model folder that a test fills, for the tests of the schema builder."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from tidegate.schema import ModelSchema, SchemaError, build


class Model:
    """A model folder that a test fills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, source: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source), encoding="utf-8")

    def build(self, source: str, ref: str = "predict.py", train: str | None = None) -> ModelSchema:
        self.file("predict.py", source)
        return build(self.folder, ref, train)

    def property(self, source: str, name: str = "x") -> dict:
        return components(self.build(source))["Input"]["properties"][name]

    def output(self, source: str) -> dict:
        return components(self.build(source))["Output"]

    def error(self, source: str, ref: str = "predict.py", train: str | None = None) -> SchemaError:
        with pytest.raises(SchemaError) as caught:
            self.build(source, ref, train)
        return caught.value


def components(schema: ModelSchema) -> dict[str, dict]:
    return schema.document["components"]["schemas"]


def predictor(parameter: str, returns: str = "str", head: str = "") -> str:
    """Return the source of a predictor; line 1 is the import, then `head`."""
    return (
        f"from cog import BasePredictor, Input, Path, Secret, File, BaseModel\n{head}\n"
        f"class Predictor(BasePredictor):\n"
        f"    def predict(self, {parameter}) -> {returns}: ...\n"
    )

"""Gives files: one, several, nested ones, large ones."""

import os
import tempfile
from typing import Any

from cog import BasePredictor, Input, Path


def a_file(name: str, text: str = "", size: int = 0) -> Path:
    path = os.path.join(tempfile.mkdtemp(), name)
    with open(path, "w") as file:
        file.write(text)
    if size:
        os.truncate(path, size)
    return Path(path)


class Predictor(BasePredictor):
    def predict(
        self,
        kind: str = "one",
        text: str = "hello",
        name: str = "out.txt",
        size: int = 0,
        path: Path | None = Input(default=None),
    ) -> Any:
        if path is not None:
            text = path.read_text()
        if kind == "one":
            return a_file(name, text, size)
        if kind == "many":
            return [a_file("a.txt", "a"), a_file("b.png", "b"), a_file("c", "c")]
        if kind == "nested":
            return {"n": 1, "files": [a_file("a.txt", "a"), {"deep": a_file("b.txt", "b")}]}
        if kind == "half":
            return [a_file("a.txt", "a"), Path("/nonexistent/file.txt")]
        if kind == "environment":
            return repr(os.environ)
        if kind == "existing":
            return Path(name)
        return text

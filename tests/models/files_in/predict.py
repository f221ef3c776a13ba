"""Describes the files that reached the function."""

import os
import time
from typing import Any

from cog import BasePredictor, File, Input, Path, Secret


def described(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [described(item) for item in value]
    if isinstance(value, Secret):
        return ["secret", str(value), repr(value), value.get_secret_value()]
    if isinstance(value, os.PathLike):
        with open(value, "rb") as file:
            content = file.read()
        return ["path", os.path.splitext(str(value))[1], content.decode("latin-1"), os.path.isabs(value)]
    if isinstance(value, str):
        return ["str", value]
    return ["file", value.read().decode("latin-1")]


class Predictor(BasePredictor):
    def __init__(self) -> None:
        self.last: str | None = None

    def predict(
        self,
        path: Path | None = Input(default=None),
        file: File | None = Input(default=None),
        secret: Secret | None = Input(default=None),
        paths: list[Path] | None = Input(default=None),
        files: list[File] | None = Input(default=None),
        text: str = "",
        gate: str = "",
        forgotten: bool = Input(default=False, description="Only say whether the last path is gone"),
    ) -> Any:
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        if forgotten:
            return self.last is not None and not os.path.exists(self.last)
        if isinstance(path, os.PathLike):
            self.last = str(path)
        given = {"path": path, "file": file, "secret": secret, "paths": paths, "files": files, "text": text or None}
        return {name: described(value) for name, value in given.items() if value is not None}

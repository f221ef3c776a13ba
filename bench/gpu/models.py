"""Copies of the models, so that several servers can have variants of one."""

import shutil
from pathlib import Path

MODELS = Path(__file__).resolve().parent / "models"


def copy(
    folder: Path, name: str, alias: str | None = None, predictor: str | None = None, append: str = ""
) -> Path:
    """A copy of a model with another name, another class of its file, or more lines in its `cog.yaml`."""
    target = folder / (alias or name)
    if target.exists():
        return target
    shutil.copytree(MODELS / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    config = target / "cog.yaml"
    text = config.read_text()
    if predictor:
        text = text.replace("predict.py:Predictor", f"predict.py:{predictor}")
    config.write_text(text + append)
    return target

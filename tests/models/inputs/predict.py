"""Gives back what reached the function, with its Python types."""

from typing import Any

from cog import BasePredictor, Input


def typed(value: object) -> object:
    if isinstance(value, list):
        return [typed(item) for item in value]
    return [type(value).__name__, value]


class Predictor(BasePredictor):
    def predict(
        self,
        text: str = "t",
        whole: int = 1,
        real: float = 0.5,
        flag: bool = False,
        anything: Any = Input(default={}),
        table: dict = Input(default={}),
        maybe: str | None = None,
        maybe_bare: int | None = Input(description="Optional without a default"),
        maybe_five: int | None = 5,
        either: int | str = 1,
        maybe_either: int | str | None = None,
        words: list[str] = Input(default=["a"]),
        numbers: list[int] = Input(default=[]),
        maybe_words: list[str] | None = None,
        bounded: int = Input(default=3, ge=1, le=10),
        ratio: float = Input(default=0.5, ge=0.0, le=1.0),
        short: str = Input(default="abc", min_length=2, max_length=5),
        lower: str = Input(default="abc", regex="^[a-z]+$"),
        loose: str = Input(default="b", regex="b"),
        colour: str = Input(default="red", choices=["red", "green"]),
        size: int = Input(default=1, choices=[1, 2, 3]),
    ) -> Any:
        seen = dict(locals())
        del seen["self"]
        return {name: typed(value) for name, value in seen.items()}

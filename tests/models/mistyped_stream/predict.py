"""Declares numbers as its values, and yields some texts."""

from collections.abc import Iterator

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, texts: int = 0) -> Iterator[float]:
        yield 1
        for n in range(texts):
            yield str(n)  # type: ignore[misc]

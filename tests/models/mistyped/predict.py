"""Declares an integer as its output, and returns text if it is asked to."""

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, count: int = 1, as_text: bool = False) -> int:
        return str(count) if as_text else count  # type: ignore[return-value]

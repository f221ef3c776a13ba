"""Yields tokens as fast as they are taken."""

from cog import BasePredictor, ConcatenateIterator, Input, streaming


class Predictor(BasePredictor):
    @streaming
    def predict(self, tokens: int = Input(description="How many")) -> ConcatenateIterator[str]:
        for index in range(tokens):
            yield f"token{index} "

"""The decoder as a Cog model that streams."""

from collections.abc import Iterator

from cog import BasePredictor
from net import Net


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.net = Net()
        for _ in self.net.generate(16):
            pass

    def predict(self, tokens: int = 200) -> Iterator[str]:
        for token in self.net.generate(tokens):
            yield f"token{token} "

import os
import sys

from cog import BasePredictor


class Predictor(BasePredictor):
    def setup(self, weights: str | None = None) -> None:
        print("loading weights")
        print("warming up", file=sys.stderr)
        self.weights = weights

    def predict(self) -> list[str]:
        return [str(self.weights), os.environ.get("MODEL_SETTING", "")]

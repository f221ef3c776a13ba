"""Returns what it is given, synchronously: what is left is the server. Also the 1 MiB echo."""

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def predict(self, text: str = Input(description="What comes back")) -> str:
        return text

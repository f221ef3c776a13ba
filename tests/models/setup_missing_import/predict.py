import not_a_real_package  # noqa: F401
from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, text: str = "x") -> str:
        return text

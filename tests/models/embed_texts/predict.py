"""An embeddings model that takes several texts: a vector has the length of the text and a half."""

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, texts: list[str]) -> list[list[float]]:
        self.record_metric("input_token_count", sum(len(text.split()) for text in texts))
        return [[float(len(text)), 0.5] for text in texts]

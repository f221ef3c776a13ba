"""The encoders as Cog models, with batches and without."""

import tidegate
from cog import BasePredictor, Input
from net import Net


class Single(BasePredictor):
    kind = "attention"

    def setup(self) -> None:
        self.net = Net(self.kind)

    def predict(self, text: str, dimensions: int = Input(default=64, ge=1, le=384)) -> list[float]:
        return self.net.embed([text], dimensions)[0]


class Predictor(Single):
    @tidegate.batched(max_size=32, max_wait="2ms")
    def predict_batch(self, items: list[dict]) -> list[list[float]]:
        vectors = self.net.embed([item["text"] for item in items], max(item["dimensions"] for item in items))
        return [vector[: item["dimensions"]] for vector, item in zip(vectors, items, strict=True)]


class DenseSingle(Single):
    kind = "dense"


class DensePredictor(Predictor):
    kind = "dense"

"""Predictions of all clients in one call: `predict_batch` beside `predict`.

The model sleeps instead of using a GPU: a call takes as long for one item as for sixteen.
"""

import time

import tidegate
from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def setup(self) -> None:
        """Pretend to load weights."""
        self.seconds_per_call = 0.05

    def predict(
        self,
        text: str = Input(description="A word or two"),
        language: str = Input(description="Texts of one language share a call", default="en"),
    ) -> str:
        """What Cog calls; tidegate calls `predict_batch` instead."""
        return self.predict_batch([{"text": text, "language": language}])[0]

    @tidegate.batched(
        max_size=16, max_wait="5ms", group="language", cost=lambda item: len(item["text"]), max_cost=4096
    )
    def predict_batch(self, items: list[dict]) -> list:
        """One result for each item, in the same order."""
        time.sleep(self.seconds_per_call)
        results = []
        for n, item in enumerate(items):
            with tidegate.item(n):
                # The logs of one prediction; a print outside of the block belongs to no prediction.
                print(f"one of {len(items)}")
            if item["text"]:
                results.append(item["text"].upper())
            else:
                # Fails this prediction, and no other.
                results.append(ValueError("the text is empty"))
        return results

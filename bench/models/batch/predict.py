"""Sleeps 10 ms per call, however many items the call has: a GPU that is not full."""

import time
from typing import Any

import tidegate
from cog import BasePredictor, Input

CALL_S = 0.01


class Predictor(BasePredictor):
    def predict(self, text: str = Input(description="What comes back")) -> str:
        return self.predict_batch([{"text": text}])[0]

    @tidegate.batched(max_size=16, max_wait="5ms")
    def predict_batch(self, items: list[dict[str, Any]]) -> list[str]:
        time.sleep(CALL_S)
        return [item["text"] for item in items]

"""A user health check whose answer is set by the last prediction."""

import os
import time

from cog import BasePredictor


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.answer = "true"
        self.calls = 0

    def healthcheck(self) -> bool:
        self.calls += 1
        if self.answer == "raise":
            raise ValueError("unwell")
        return {"true": True, "false": False, "none": None, "text": "yes", "zero": 0}[self.answer]

    def predict(self, answer: str = "true", gate: str = "") -> int:
        self.answer = answer
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        return self.calls

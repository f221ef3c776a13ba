"""An embeddings model that takes one text. `hold=PATH` waits until the file exists."""

import math
import os
import time

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, text: str, normalize: bool = False) -> list[float]:
        if text == "fail":
            raise ValueError("no vector for this text")
        while text.startswith("hold=") and not os.path.exists(text.removeprefix("hold=")):
            time.sleep(0.005)
        self.record_metric("input_token_count", len(text.split()))
        vector = [float(len(text)), 0.5]
        length = math.hypot(*vector) if normalize else 1.0
        return [value / length for value in vector]

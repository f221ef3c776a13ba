"""Sets up well, and dies soon after, every time."""

import os
import threading

from cog import BasePredictor


class Predictor(BasePredictor):
    def setup(self) -> None:
        threading.Timer(0.3, os._exit, (7,)).start()

    def predict(self, text: str = "x") -> str:
        return text

"""Setup waits for the file named by SETUP_GATE; with SETUP_FAILS it fails then."""

import os
import time

from cog import BasePredictor


class Predictor(BasePredictor):
    def setup(self) -> None:
        print("still loading")
        while not os.path.exists(os.environ["SETUP_GATE"]):
            time.sleep(0.005)
        if "SETUP_FAILS" in os.environ:
            raise RuntimeError("no weights")

    def predict(self, text: str = "x", limit: int = 1) -> str:
        return text

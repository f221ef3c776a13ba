"""A sync model with a bit of everything the HTTP tests need."""

import os
import time

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def predict(
        self,
        text: str = "hello",
        gate: str = Input(default="", description="Wait until this file exists"),
        fail: str = Input(default="", description="Raise ValueError with this message"),
        log: str = Input(default="", description="Print this line first"),
        limit: int = Input(default=1, ge=1, le=10),
        nothing: str | None = None,
    ) -> str:
        if log:
            print(log)
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        if fail:
            raise ValueError(fail)
        return text

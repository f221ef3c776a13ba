"""A streaming sync generator; `gate` holds it before the chunk number `hold_at`."""

import os
import time
from collections.abc import Iterator

import cog
from cog import BasePredictor, Input


class Predictor(BasePredictor):
    @cog.streaming
    def predict(
        self,
        count: int = 3,
        gate: str = "",
        hold_at: int = 1,
        log: str = "",
        metric: bool = False,
        fail_at: int = Input(default=-1, description="Raise before this chunk"),
    ) -> Iterator[str]:
        if log:
            print(log)
        if metric:
            self.record_metric("seen", 1)
            self.record_metric("total", 2, mode="incr")
            self.record_metric("names", "a", mode="append")
        for index in range(count):
            while gate and index == hold_at and not os.path.exists(gate):
                time.sleep(0.005)
            if index == fail_at:
                raise ValueError("no more")
            yield f"chunk{index}"

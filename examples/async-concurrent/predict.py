"""Eight concurrent predictions in one process: a prediction that waits does not block the others."""

import asyncio
import time

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    async def setup(self) -> None:
        self.running = 0

    async def predict(
        self,
        question: str = Input(description="What to think about"),
        seconds: float = Input(description="How long to think", default=0.2, ge=0, le=60),
    ) -> dict:
        self.running += 1
        began = time.monotonic()
        try:
            await asyncio.sleep(seconds)
            self.record_metric("at_once", self.running)
            return {"answer": question.upper(), "seconds": round(time.monotonic() - began, 3)}
        finally:
            self.running -= 1

import asyncio
import os
from collections.abc import AsyncIterator

import cog
from cog import BasePredictor


class Predictor(BasePredictor):
    @cog.streaming
    async def predict(self, count: int = 3, gate: str = "", hold_at: int = 1, fail_at: int = -1) -> AsyncIterator[str]:
        for index in range(count):
            while gate and index == hold_at and not os.path.exists(gate):
                await asyncio.sleep(0.005)
            if index == fail_at:
                raise ValueError("no more")
            yield f"chunk{index}"

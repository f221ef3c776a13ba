"""Four predictions at once on one event loop."""

import asyncio
import os

from cog import BasePredictor, current_scope


class Predictor(BasePredictor):
    async def setup(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def predict(self, text: str = "x", gate: str = "", fail: str = "", cleanup: str = "") -> dict:
        print(f"begin {text}")
        try:
            while gate and not os.path.exists(gate):
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            if cleanup:
                open(cleanup, "w").close()
            raise
        if fail:
            raise ValueError(fail)
        self.record_metric("letters", len(text))
        print(f"end {text}")
        return {
            "text": text,
            "context": dict(current_scope().context),
            "same_loop": self.loop is asyncio.get_running_loop(),
        }

"""Returns what it is given, up to 32 at once on one event loop."""

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    async def predict(self, text: str = Input(description="What comes back")) -> str:
        return text

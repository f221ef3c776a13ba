from cog import BasePredictor


class Predictor(BasePredictor):
    async def setup(self) -> None:
        self.answer = True

    async def healthcheck(self) -> bool:
        return self.answer

    async def predict(self, answer: bool = True) -> str:
        self.answer = answer
        return "ok"

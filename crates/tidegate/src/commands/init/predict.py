from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def setup(self) -> None:
        """Runs once, before the first prediction: load weights here."""
        self.greeting = "hello"

    def predict(
        self,
        name: str = Input(description="Who is greeted", default="world"),
        times: int = Input(description="How often", default=1, ge=1, le=10),
    ) -> str:
        """Runs for every prediction."""
        return " ".join([self.greeting, name] * times)

"""The smallest model: no dependencies, one input, one output."""

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def setup(self) -> None:
        print("setting up: a real model would load its weights here")
        self.greeting = "hello"

    def predict(self, name: str = Input(description="Who is greeted")) -> str:
        print(f"greeting {name}")
        return f"{self.greeting} {name}"

from cog import BasePredictor


class Predictor(BasePredictor):
    def setup(self) -> None:
        print("about to fail")
        raise RuntimeError("no weights here")

    def predict(self, text: str = "x") -> str:
        return text

from cog import BaseModel, BasePredictor, Input


class TrainingOutput(BaseModel):
    weights: str
    epochs: int


def train(data: str, epochs: int = Input(default=3, ge=1, le=10), fail: bool = False) -> TrainingOutput:
    print(f"training on {data}")
    if fail:
        raise ValueError("no convergence")
    return TrainingOutput(weights=f"{data}.bin", epochs=epochs)


class Predictor(BasePredictor):
    def predict(self, text: str = "hello") -> str:
        return text

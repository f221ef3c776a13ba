from typing import Any

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def predict(
        self,
        name: str,
        count: int = Input(ge=1),
        colour: str = Input(choices=["red", "green"]),
        none_default: str = None,  # required on Cog
        extra: str | None = None,
    ) -> Any:
        return [name, count, colour, none_default, extra]

"""Work in processes of its own, which import this file and with it cog."""

import multiprocessing

from cog import BasePredictor, current_scope


def square(number: int) -> int:
    current_scope().record_metric("ignored", 1)
    return number * number


class Predictor(BasePredictor):
    def predict(self, how: str = "spawn") -> list[int]:
        with multiprocessing.get_context(how).Pool(1) as pool:
            return pool.map(square, range(3))

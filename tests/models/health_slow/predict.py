import time

from cog import BasePredictor


class Predictor(BasePredictor):
    def healthcheck(self) -> bool:
        time.sleep(6)
        return True

    def predict(self) -> str:
        return "ok"

class Predictor:
    def setup(self) -> None:
        pass

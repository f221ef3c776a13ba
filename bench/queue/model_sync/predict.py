"""Records when it began and sleeps for the requested time; one job at a time."""

import os
import time

JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Predictor:
    def predict(self, number: int, seconds: float = 0.0) -> int:
        os.write(JOURNAL, f"{number} {time.monotonic()}\n".encode())
        if seconds:
            time.sleep(seconds)
        return number

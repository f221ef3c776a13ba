"""Sleeps as long as it is told, and notes when it began; one job at a time."""

import os
import time

JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Predictor:
    def predict(self, number: int, seconds: float = 0.0) -> int:
        os.write(JOURNAL, f"{number} {time.monotonic()}\n".encode())
        if seconds:
            time.sleep(seconds)
        return number

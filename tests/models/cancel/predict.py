"""Ways to be busy, and ways to meet a cancellation."""

import contextlib
import time

import cog
from cog import BasePredictor


def mark(path: str, text: str = "") -> None:
    with open(path, "a") as file:
        file.write(text)


class Predictor(BasePredictor):
    def predict(self, how: str = "loop", began: str = "", ended: str = "") -> str:
        if began:
            mark(began)
        return getattr(self, how)(ended)

    def quick(self, _: str) -> str:
        return "done"

    def loop(self, _: str) -> str:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pass
        return "never"

    def sleep(self, _: str) -> str:
        time.sleep(3.0)
        return "slept"

    def swallow(self, ended: str) -> str:
        try:
            while True:
                time.sleep(0.005)
        except cog.CancelationException:
            mark(ended, "swallowed")
        return "normal"

    def shielded(self, ended: str) -> str:
        try:
            while True:
                with contextlib.suppress(Exception):
                    time.sleep(0.005)
        finally:
            print("cleaned up")
            self.record_metric("cleaned", True)
            mark(ended, "finally")

    def stubborn(self, _: str) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)
        return "never"

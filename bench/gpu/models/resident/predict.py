"""Holds a share of the card's memory from setup on, and uses it."""

import os

import torch
from cog import BasePredictor

SHARE = float(os.environ.get("RESIDENT_SHARE", "0.6"))


class Predictor(BasePredictor):
    def setup(self) -> None:
        if loads := os.environ.get("RESIDENT_LOADS"):
            with open(loads, "a") as file:
                file.write(".")  # one for each load
        total = torch.cuda.get_device_properties(0).total_memory
        self.weights = torch.ones(int(total * SHARE), dtype=torch.uint8, device="cuda")

    def predict(self, n: int = 1) -> int:
        return int(self.weights[-1000:].sum()) + n

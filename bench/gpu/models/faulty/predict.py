"""Adds on the GPU, and fails on it in every way that matters."""

import os

import torch
from cog import BasePredictor, Input

MODES = ["add", "assert", "swallowed-assert", "out-of-memory", "wrapped-out-of-memory", "exit"]


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.table = torch.arange(1000, device="cuda")

    def predict(self, mode: str = Input(default="add", choices=MODES)) -> str:
        if mode == "assert":
            self._index_out_of_range()
        elif mode == "swallowed-assert":
            try:
                self._index_out_of_range()
            except RuntimeError:
                return "swallowed"
        elif mode == "out-of-memory":
            self._fill()
        elif mode == "wrapped-out-of-memory":
            try:
                self._fill()
            except torch.OutOfMemoryError as error:
                raise RuntimeError("the picture is too large") from error
        elif mode == "exit":
            os._exit(1)
        return f"{os.getpid()} {int((self.table + 1).sum())}"

    def _index_out_of_range(self) -> None:
        # An assertion in the kernel fails; every later call of CUDA in this process does, too.
        self.table[torch.tensor([5000], device="cuda")].cpu()

    def _fill(self) -> None:
        parts = []
        while True:
            parts.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))

"""An asynchronous model that breaks its GPU and swallows the error."""

import os

import torch
from cog import BasePredictor


class Predictor(BasePredictor):
    async def predict(self, do: str = "work") -> int:
        """Return the process id."""
        torch.cuda.init()
        if do == "assert_swallowed":
            torch.cuda.break_context("CUDA error: an illegal memory access was encountered")
        return os.getpid()

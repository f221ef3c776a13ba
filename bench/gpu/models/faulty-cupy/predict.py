"""Adds with CuPy, and fails with it."""

import os

import cupy
from cog import BasePredictor, Input

MODES = ["add", "illegal-access", "swallowed-illegal-access", "out-of-memory"]
KERNEL = 'extern "C" __global__ void write(int* target) { target[threadIdx.x] = 1; }'
INVALID_ADDRESS = 16


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.table = cupy.arange(1000)
        self.kernel = cupy.RawKernel(KERNEL, "write")

    def predict(self, mode: str = Input(default="add", choices=MODES)) -> str:
        if mode == "out-of-memory":
            parts = []
            while True:
                parts.append(cupy.empty(8 << 30, dtype=cupy.uint8))
        if mode.endswith("illegal-access"):
            try:
                self.kernel((1,), (32,), (INVALID_ADDRESS,))
                cupy.cuda.runtime.deviceSynchronize()
            except cupy.cuda.runtime.CUDARuntimeError:
                if mode == "illegal-access":
                    raise
                return "swallowed"
        return f"{os.getpid()} {int((self.table + 1).sum())}"

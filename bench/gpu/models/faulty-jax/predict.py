"""Adds with JAX, and fails with it. A kernel of CuPy breaks the context, which both share."""

import os

import cupy
import jax
import jax.numpy as jnp
from cog import BasePredictor, Input

MODES = ["add", "swallowed-illegal-access", "out-of-memory"]
KERNEL = 'extern "C" __global__ void write(int* target) { target[threadIdx.x] = 1; }'
INVALID_ADDRESS = 16


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.table = jnp.arange(1000)
        self.kernel = cupy.RawKernel(KERNEL, "write")

    def predict(self, mode: str = Input(default="add", choices=MODES)) -> str:
        if mode == "out-of-memory":
            parts = []
            while True:
                parts.append(jax.block_until_ready(jnp.ones(8 << 30, dtype=jnp.uint8)))
        if mode == "swallowed-illegal-access":
            try:
                self.kernel((1,), (32,), (INVALID_ADDRESS,))
                cupy.cuda.runtime.deviceSynchronize()
            except cupy.cuda.runtime.CUDARuntimeError:
                return "swallowed"
        return f"{os.getpid()} {int((self.table + 1).sum())}"

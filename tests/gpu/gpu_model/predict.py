"""A model on a fake GPU: shows its environment, holds memory, dies on request."""

import json
import os
import time

import fake_cuda
from cog import BasePredictor


class Predictor(BasePredictor):
    def setup(self) -> None:
        if size := os.environ.get("MODEL_HOLDS"):
            fake_cuda.hold(int(size))

    def predict(self, hold: int = -1, gate: str = "", die: bool = False) -> str:
        if hold >= 0:
            fake_cuda.hold(hold)
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        if die:
            os._exit(1)
        names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
        return json.dumps({"pid": os.getpid()} | {name: os.environ.get(name) for name in names})

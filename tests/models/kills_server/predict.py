"""A model that can kill its server at once."""

import os
import signal
import time
from pathlib import Path

from cog import BasePredictor, Input


class Predictor(BasePredictor):
    def predict(
        self,
        gate: str = Input(default="", description="Wait until this file exists"),
        kill: str = Input(default="", description="Add a line to this file and kill the server"),
    ) -> str:
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        if kill:
            with Path(kill).open("a") as runs:
                runs.write("run\n")
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        return "alive"

"""Uses what only the main thread may use."""

import signal
import threading

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self) -> bool:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return threading.current_thread() is threading.main_thread()

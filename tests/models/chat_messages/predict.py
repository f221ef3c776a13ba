"""A text model that takes messages and returns its text at once: the messages as JSON."""

import json

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, messages: list[dict]) -> str:
        self.record_metric("prompt_tokens", len(messages))
        self.record_metric("completion_tokens", 1)
        self.record_metric("finish_reason", "length")
        return json.dumps(messages)

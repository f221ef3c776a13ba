"""Its output may be anything: the prompt as JSON, or as a text if it is not JSON."""

import json
from typing import Any

from cog import BasePredictor


class Predictor(BasePredictor):
    def predict(self, prompt: str) -> Any:
        try:
            return json.loads(prompt)
        except ValueError:
            return prompt

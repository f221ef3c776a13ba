"""A text model with the usual inputs: streams the words of its prompt and counts them as tokens.

A prompt may begin with commands: `fail=N` raises before word N, `hold=PATH` waits before the second word
until the file exists.
"""

import os
import time
from collections.abc import Iterator

import cog
from cog import BasePredictor, Input


class Predictor(BasePredictor):
    @cog.streaming
    def predict(
        self,
        prompt: str,
        system_prompt: str = "",
        max_new_tokens: int = Input(default=64, ge=1, le=100),
        temperature: float = Input(default=1.0, ge=0, le=2),
        stop_sequences: str = "",
        suffix_word: str = Input(default="", description="Added to the words"),
    ) -> Iterator[str]:
        commands = dict(word.split("=", 1) for word in prompt.split() if "=" in word)
        words = [*system_prompt.split(), *prompt.split(), *suffix_word.split()]
        self.record_metric("input_token_count", len(words))
        for index, word in enumerate(words[:max_new_tokens]):
            if str(index) == commands.get("fail"):
                raise ValueError("out of words")
            while index == 1 and "hold" in commands and not os.path.exists(commands["hold"]):
                time.sleep(0.005)
            self.record_metric("output_token_count", index + 1)
            yield word if index == 0 else f" {word}"

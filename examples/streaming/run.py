"""Streams text: each `yield` is sent to the client immediately."""

import time

from cog import BaseRunner, ConcatenateIterator, Input, streaming


class Runner(BaseRunner):
    @streaming
    def run(
        self,
        prompt: str = Input(description="What the text is about"),
        words: int = Input(description="How many words", default=12, ge=1, le=10_000),
        delay: float = Input(description="Seconds between two words", default=0.0, ge=0, le=5),
    ) -> ConcatenateIterator[str]:
        text = f"{prompt} is on its way".split()
        for i in range(words):
            time.sleep(delay)
            self.record_metric("words", 1, mode="incr")
            yield text[i % len(text)] + " "

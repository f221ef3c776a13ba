"""The current names: `run:`, BaseRunner, a file in a folder, a sibling import, state on self."""

import helper
from cog import BaseRunner, Input


class Runner(BaseRunner):
    def setup(self) -> None:
        self.calls = 0

    def run(self, text: str = Input(default="x", description="What to say"), *, times: int = 2) -> dict:
        self.calls += 1
        return {"text": helper.shout(text) * times, "calls": self.calls, "module": __name__}

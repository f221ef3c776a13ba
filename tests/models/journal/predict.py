"""Two predictions at once; every execution is written to the file `journal` beside this one."""

import asyncio
import os
from typing import Any

from cog import BasePredictor, Input, Path

JOURNAL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "journal")


def note(word: str, nonce: str) -> None:
    """One line in one write: executions in several processes do not mix."""
    with open(JOURNAL, "a") as journal:
        journal.write(f"{word} {nonce}\n")


class Predictor(BasePredictor):
    async def predict(
        self,
        nonce: str = "",
        gate: str = Input(default="", description="Wait until this file exists"),
        whole: int = 0,
        real: float = 0.0,
        flag: bool = False,
        words: list[str] = Input(default=[]),
        anything: Any = Input(default={}),
        path: Path | None = Input(default=None),
        paths: list[Path] | None = Input(default=None),
    ) -> str:
        note("begin", nonce)
        how = "canceled"
        try:
            while gate and not os.path.exists(gate):
                await asyncio.sleep(0.005)
            how = "ok"
        finally:
            note(how, nonce)
        return nonce

"""One input of each kind that the playground has a control for; the output says what arrived."""

import time
from pathlib import Path as File
from typing import Any

from cog import BasePredictor, Input, Path, Secret


class Predictor(BasePredictor):
    def predict(
        self,
        title: str = Input(description="One line", max_length=40),
        prompt: str = Input(description="Long text", default="several\nlines"),
        steps: int = Input(description="Slider and box", default=4, ge=1, le=10),
        ratio: float = Input(default=0.5, ge=0, le=1),
        seed: int | None = Input(description="Unset means random", default=None),
        sharp: bool = Input(default=False),
        style: str = Input(default="plain", choices=["plain", "bold"]),
        key: Secret | None = Input(description="A secret", default=None),
        image: Path | None = Input(description="A file", default=None),
        words: list[str] = Input(default=[]),
        options: dict = Input(default={}),
        suffix: str = Input(description="Empty is not unset", default="!"),
        gate: str = Input(description="The prediction waits for this file", default=""),
    ) -> Any:
        print(f"title is {title}")
        print("none 0 %", "half 50 %", "\033[32mall 100 %\033[0m", sep="\r")
        while gate and not File(gate).exists():
            time.sleep(0.02)
        return {
            "title": title,
            "prompt": prompt,
            "steps": steps,
            "ratio": ratio,
            "seed": seed,
            "sharp": sharp,
            "style": style,
            "key": key.get_secret_value() if key else None,
            "image": image.read_bytes().decode("latin-1")[:40] if image else None,
            "words": words,
            "options": options,
            "suffix": suffix,
        }

"""One input file, two output files: counts the words of a text and draws a bar chart."""

import collections
import json
import tempfile

from cog import BaseModel, BasePredictor, Input, Path


class Output(BaseModel):
    counts: Path
    chart: Path
    words: int


class Predictor(BasePredictor):
    def predict(
        self,
        text: Path = Input(description="A text file, as URL or data URI"),
        top: int = Input(description="How many words to show", default=5, ge=1, le=50),
    ) -> Output:
        words = text.read_text().lower().split()
        common = collections.Counter(words).most_common(top)
        folder = Path(tempfile.mkdtemp())
        counts = Path(folder / "counts.json")
        counts.write_text(json.dumps(dict(common)))
        chart = Path(folder / "chart.svg")
        chart.write_text(bars(common))
        return Output(counts=counts, chart=chart, words=len(words))


def bars(common: list[tuple[str, int]]) -> str:
    rows = "".join(
        f'<rect y="{20 * i}" width="{20 * n}" height="16"/><text x="{20 * n + 4}" y="{20 * i + 13}">{n}</text>'
        for i, (_, n) in enumerate(common)
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" height="{20 * len(common)}">{rows}</svg>'

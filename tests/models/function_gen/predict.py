from collections.abc import Iterator


def predict(text: str = "x") -> Iterator[str]:
    yield "gen"
    yield text

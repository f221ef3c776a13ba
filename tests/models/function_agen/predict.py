from collections.abc import AsyncIterator


async def predict(text: str = "x") -> AsyncIterator[str]:
    yield "agen"
    yield text

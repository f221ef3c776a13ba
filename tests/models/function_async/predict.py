import asyncio


async def predict(text: str = "x") -> str:
    await asyncio.sleep(0)
    return f"async {text}"

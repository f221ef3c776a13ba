"""User code at its worst on an event loop, four jobs at once."""

import asyncio
import os
import threading
import time
from typing import Any

import cog


class Predictor(cog.BasePredictor):
    def healthcheck(self) -> bool:
        return True

    async def predict(self, how: str = "echo", text: str = "", gate: str = "", number: int = 0) -> Any:
        print(f"begin {text}")
        if how == "echo":
            return f"echo {text}"
        if how == "gate":
            while not os.path.exists(gate):
                await asyncio.sleep(0.005)
            print(f"end {text}")
            return text
        return await getattr(self, how)(text)

    async def blocks_loop(self, _: str) -> None:
        time.sleep(600)

    async def busy_loop(self, _: str) -> None:
        while True:
            pass

    async def stops_loop(self, text: str) -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return text

    async def closes_loop(self, text: str) -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.stop)
        threading.Timer(0.05, loop.close).start()
        await asyncio.sleep(0.2)
        return text

    async def cancels_others(self, text: str) -> str:
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        return text

    async def cancels_itself(self, _: str) -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(1)

    async def swallows(self, _: str) -> None:
        while True:
            try:
                await asyncio.sleep(0.01)
            except BaseException:
                print("not me")

    async def forks(self, text: str) -> str:
        """Both halves return."""
        os.fork()
        await asyncio.sleep(0)
        return text

    async def removes_readers(self, text: str) -> str:
        """Takes every socket away from the loop, the slots' too."""
        loop = asyncio.get_running_loop()
        for fd in range(3, 300):
            try:
                loop.remove_reader(fd)
            except Exception:
                continue
        return text

    async def bad_handler(self, text: str) -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: 1 / 0)
        loop.call_soon(lambda: 1 / 0)
        loop.call_soon(lambda: [][1])
        await asyncio.sleep(0.01)
        return text

    async def task_exits(self, text: str) -> str:
        async def leave() -> None:
            raise SystemExit(3)

        asyncio.create_task(leave())
        await asyncio.sleep(0.05)
        return text

    async def memory(self, _: str) -> int:
        kept = []
        for _i in range(500):
            kept.append(b"x" * (1024 * 1024))
            await asyncio.sleep(0)
        return len(kept)

    async def exits(self, _: str) -> None:
        os._exit(3)

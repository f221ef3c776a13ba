"""Ways to take long."""

import ctypes
import threading
import time


def sleep(number, **_):
    print("begun", flush=True)
    time.sleep(number)
    return "slept"


def gil(number, **_):
    """Holds the interpreter's lock in C."""
    print("begun", flush=True)
    ctypes.PyDLL(None).sleep(number)
    return "held"


def deadlock(**_):
    print("begun", flush=True)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def busy(**_):
    print("begun", flush=True)
    while True:
        pass


def swallow(**_):
    print("begun", flush=True)
    while True:
        try:
            time.sleep(0.05)
        except BaseException:
            print("not me")


def coroutine(**_):
    """An event loop inside a synchronous model that never comes back."""
    import asyncio

    print("begun", flush=True)
    asyncio.run(asyncio.sleep(10**6))


def awaited(**_):
    async def wait():
        import asyncio

        print("begun", flush=True)
        while True:
            try:
                await asyncio.sleep(0.01)
            except BaseException:
                print("not me")

    return wait()

from contextlib import contextmanager

import runpod

is_open = False


@contextmanager
def connection():
    global is_open
    is_open = True
    yield
    is_open = False


with connection():
    runpod.serverless.start({"handler": lambda job: is_open})

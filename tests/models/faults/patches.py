"""Changes to the interpreter that later jobs have to live with."""

import builtins
import io
import os
import signal
import sys


def json_module(**_):
    import json

    json.dumps = lambda *_, **__: "null"
    json.loads = lambda *_, **__: {"how": "patched"}
    json.JSONEncoder.default = json.JSONDecoder.decode = lambda *_: 1 / 0
    return "patched"


def built_ins(**_):
    """What the child's own Python code uses between two jobs."""

    def broken(*_, **__):
        raise RuntimeError("this built-in is broken")

    for name in ("isinstance", "getattr", "hasattr", "callable", "type", "len", "repr", "open", "print"):
        setattr(builtins, name, broken)
    return "patched"


def streams(**_):
    sys.stdout = io.StringIO()
    sys.stderr = None
    sys.__stdout__ = sys.__stderr__ = None
    return "patched"


def closed_streams(**_):
    sys.stdout.close()
    sys.stderr.close()
    for fd in (0, 1, 2):
        os.close(fd)
    return "patched"


def modules(**_):
    for name in list(sys.modules):
        if name.split(".")[0] in ("tidegate", "cog", "json", "os", "io", "traceback", "builtins"):
            sys.modules[name] = None
    sys.path[:] = []
    sys.meta_path[:] = []
    return "patched"


def internals(**_):
    """Takes the child's own functions away."""
    from tidegate import report, run

    run.fail = report.describe = report.message = None
    return "patched"


def working_folder(**_):
    os.chdir("/")
    os.umask(0o777)
    os.environ.clear()
    return "patched"


def signals(**_):
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    return "patched"


def tracing(**_):
    def trace(*_):
        raise RuntimeError("traced")

    sys.setprofile(lambda *_: None)
    sys.settrace(trace)
    return "patched"


def recursion_limit(**_):
    sys.setrecursionlimit(60)
    return "patched"


def exception_hooks(**_):
    import threading

    sys.excepthook = threading.excepthook = sys.unraisablehook = lambda *_: os._exit(9)

    class Dies:
        def __del__(self):
            raise RuntimeError("in a destructor")

    return Dies() and "patched"


def context(**_):
    """Pretends that no job is running."""
    from tidegate.current import CURRENT

    CURRENT.set(None)
    print("mine")
    CURRENT.set(42)
    return "patched"


def exit_handlers(**_):
    """Something that never ends when the process wants to."""
    import atexit
    import threading
    import time

    atexit.register(time.sleep, 600)
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "patched"


def garbage_collector(**_):
    import gc

    gc.disable()
    gc.freeze()
    gc.callbacks.append(lambda *_: 1 / 0)
    return "patched"

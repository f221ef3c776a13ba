"""Makes threads inherit the job that starts them.

Python gives a new thread an empty context, and a pool thread runs tasks of several jobs. Both are
patched where they start: the low-level start function, before `threading` copies it, and
`ThreadPoolExecutor.submit`, when its module is imported. Processes do not inherit a job.
"""

import _thread
import sys
from _contextvars import copy_context

from tidegate.current import CURRENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_POOL = "concurrent.futures.thread"


def inherit_jobs() -> None:
    """Make threads and pool tasks inherit the job of the code that starts them."""
    names = ("start_new_thread", "start_joinable_thread")
    for name in names:
        original = getattr(_thread, name, None)
        if original is None:
            continue
        wrapped = _inheriting(original)
        setattr(_thread, name, wrapped)
        threading = sys.modules.get("threading")
        # `threading` has its own copy if it was imported before us.
        if threading is not None and hasattr(threading, f"_{name}"):
            setattr(threading, f"_{name}", wrapped)
    if _POOL in sys.modules:
        _patch_pool(sys.modules[_POOL])
    else:
        sys.meta_path.insert(0, _PoolFinder())


def _inheriting(start: "Callable[..., object]") -> "Callable[..., object]":
    def start_in_context(function: "Callable[..., object]", *args: object, **kwargs: object) -> object:
        if CURRENT.get() is None:
            return start(function, *args, **kwargs)
        run = copy_context().run

        def in_context(*inner: object, **named: object) -> object:
            return run(function, *inner, **named)

        return start(in_context, *args, **kwargs)

    return start_in_context


def _patch_pool(module: "ModuleType") -> None:
    pool = module.ThreadPoolExecutor
    submit = pool.submit

    def submit_in_context(
        self: object, function: "Callable[..., object]", /, *args: object, **kwargs: object
    ) -> object:
        if CURRENT.get() is None:
            return submit(self, function, *args, **kwargs)
        return submit(self, copy_context().run, function, *args, **kwargs)

    submit_in_context.__doc__ = submit.__doc__
    pool.submit = submit_in_context


class _PoolFinder:
    """Patches the pool's module at its first import, then removes itself."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Find only the pool's module."""
        if name != _POOL:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_patch(module: "ModuleType") -> None:
            execute(module)
            _patch_pool(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)

        # Patches this loader object only, which loads no other module.
        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec

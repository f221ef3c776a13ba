"""Loads the user's code: imports the file and finds the class or function to call.

Imports the file as Cog does: by path, under its base name, so that pickles of its classes keep working.
`tidegate.call_kind` decides how the code is called.
"""

import os
import sys

from tidegate.call_kind import accepts, call_kind_of, unwrap_defaults
from tidegate.errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class EntryPoint:
    """A loaded function of the model, with its setup and health check. Does not change after loading."""

    __slots__ = ("batch", "call", "call_kind", "healthcheck", "instance", "setup", "setup_takes_weights")

    def __init__(self, instance: "object | None", call: "Callable[..., Any]") -> None:
        """`instance` is the predictor object if the model is a class."""
        self.instance = instance
        self.call = call
        self.call_kind = call_kind_of(call)
        self.setup = _user_method(instance, "setup")
        self.setup_takes_weights = self.setup is not None and accepts(self.setup, "weights")
        self.healthcheck = _user_method(instance, "healthcheck")
        self.batch = _user_method(instance, "predict_batch")


def load(ref: str, *, role: str = "predict", shared_with: "EntryPoint | None" = None) -> EntryPoint:
    """Load `file.py:Name`. `role` is `predict` or `train`; `shared_with` may provide the predictor object."""
    path, _, name = ref.partition(":")
    module = import_file(path)
    found = _get_name(module, name) if name else _default_name(module, role)
    if not isinstance(found, type):
        if not callable(found):
            raise LoadError(f"`{ref}` is neither a class nor a function, but {type(found).__name__}")
        unwrap_defaults(found)
        entry_point = EntryPoint(None, found)
        beside = getattr(module, "predict_batch", None)
        entry_point.batch = beside if role == "predict" and callable(beside) else None
        return entry_point
    method = "train" if role == "train" else _method_name(found, name or found.__name__)
    if not callable(getattr(found, method, None)):
        raise LoadError(f"{method} method not found: {name}")
    shared = shared_with.instance if shared_with is not None and type(shared_with.instance) is found else None
    instance = found() if shared is None else shared
    call = getattr(instance, method)
    unwrap_defaults(call)
    entry_point = EntryPoint(instance, call)
    if shared is not None:
        entry_point.setup = None  # it runs for the other entry point
    return entry_point


def import_file(path: str) -> "ModuleType":
    """Import a file of the model, once."""
    name = os.path.basename(path)
    name = name[:-3] if name.endswith(".py") else name
    full = os.path.abspath(path)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == full:
        return known
    from importlib.machinery import ModuleSpec, SourceFileLoader

    loader = SourceFileLoader(name, full)
    module = type(sys)(name)
    module.__file__ = full
    module.__loader__ = loader
    module.__package__ = ""
    module.__spec__ = ModuleSpec(name, loader, origin=full)
    module.__spec__.has_location = True
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _get_name(module: "ModuleType", name: str) -> object:
    try:
        return getattr(module, name)
    except AttributeError:
        file = os.path.basename(module.__file__ or "")
        raise AttributeError(f"`{file}` does not define `{name}`; correct the name in cog.yaml") from None


def _default_name(module: "ModuleType", role: str) -> object:
    names = ("train",) if role == "train" else ("Runner", "Predictor")
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {module.__name__!r} has no {' or '.join(names)}")


def _method_name(cls: type, name: str) -> str:
    """Return `run` or `predict`, whichever the class defines."""
    defined = [method for method in ("run", "predict") if _defines(cls, method)]
    if len(defined) == 2:
        raise ValueError(f"{name} must define either run() or predict(), not both")
    if not defined:
        raise ValueError(f"run or predict method not found: {name}")
    return defined[0]


def _defines(cls: type, method: str) -> bool:
    framework = _framework_classes()
    for owner in cls.__mro__:
        if owner in framework:
            return False
        if callable(owner.__dict__.get(method)) or isinstance(
            owner.__dict__.get(method), staticmethod | classmethod
        ):
            return True
    return False


def _user_method(instance: "object | None", method: str) -> "Callable[..., Any] | None":
    """Return the method if user code defines it; the defaults of `cog.BaseRunner` do not count."""
    if instance is None:
        return None
    found = getattr(instance, method, None)
    if not callable(found):
        return None
    framework = _framework_classes()
    owner = next((c for c in type(instance).__mro__ if method in c.__dict__), None)
    return None if owner in framework else found


def _framework_classes() -> "tuple[type, ...]":
    cog = sys.modules.get("cog")
    names = ("BaseRunner", "BasePredictor")
    return (object, *(getattr(cog, name) for name in names if isinstance(getattr(cog, name, None), type)))

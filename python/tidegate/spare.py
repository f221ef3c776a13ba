"""A child that waits to take the place of another one: its modules are imported, its setup has not run."""

import ast
import os

from tidegate import _native, gpu_context
from tidegate.loader import import_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate._native import InitMessage


def wait_after_imports(init: "InitMessage") -> None:
    """Import the files of a model, then wait until the server asks for the setup."""
    refs = [init.train_ref] if init.train_mode else [init.predictor_ref, init.train_ref]
    for ref in refs:
        if ref is not None:
            import_file(ref.partition(":")[0])
    _wait()


def wait_after_first_imports(path: str) -> None:
    """Run the imports at the beginning of a script, then wait until the server asks for the rest.

    Only those before its first other statement: a later import may depend on what the script has done, such
    as setting an environment variable.
    """
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    for name in _first_imports(tree):
        __import__(name)
    _wait()


def _wait() -> None:
    os.environ.update(_native.wait_for_setup(gpu_context.is_used(), _has_driver()))


def _has_driver() -> bool:
    """Return whether this process has opened NVIDIA's driver, which reads CUDA_VISIBLE_DEVICES only then."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/dev/nvidia"):
                return True
        except OSError:  # closed meanwhile
            continue
    return False


def _first_imports(tree: "ast.Module") -> "Iterator[str]":
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            if statement.level == 0 and statement.module != "__future__" and statement.module:
                yield statement.module
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return

"""Runs a file as `python file.py` would."""

import os
import sys


def run(path: str) -> None:
    """Run the file as `__main__`."""
    full = os.path.abspath(path)
    module = type(sys)("__main__")
    module.__file__ = full
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]  # as in every `__main__`
    # Registered as the real `__main__`: pickles and `multiprocessing` look up the script's names there.
    sys.modules["__main__"] = module
    with open(full, "rb") as file:
        code = compile(file.read(), full, "exec", dont_inherit=True)
    exec(code, vars(module))  # noqa: S102  # the model's own code

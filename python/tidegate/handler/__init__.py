"""Runs scripts that register a handler: `runpod.serverless.start({"handler": handler})`.

The script runs as `__main__`, as `python handler.py` would run it. `tidegate.handler.entry` replaces `start`,
whether the real `runpod` is installed or our replacement in `shims` is used. `start` serves jobs, and returns
when the server asks the child to exit.
"""

SCRIPT = "__main__"
"""Stands for the name in a reference: run the file, and use the handler that it registers."""


def is_script(ref: str) -> bool:
    """Return whether `file.py:Name` refers to a script and not to a class or function."""
    return ref.rpartition(":")[2] == SCRIPT

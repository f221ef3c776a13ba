"""Scripts that hand their handler over: `runpod.serverless.start({"handler": handler})`.

The script runs as `__main__`, the way `python handler.py` would run it. Its call of `start` is answered by
`tidegate.handler.entry`, whether the real `runpod` is installed or our stand-in in `shims` takes its place:
it serves jobs from there, and returns when the server wants the child to end.
"""

SCRIPT = "__main__"
"""In the place of a name in a reference: run the file, and see what it hands over."""


def is_script(ref: str) -> bool:
    """Tell whether `file.py:Name` names a script and not something in it."""
    return ref.rpartition(":")[2] == SCRIPT

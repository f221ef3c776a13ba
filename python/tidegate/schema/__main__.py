"""`python -m tidegate.schema DIR [--predict REF] [--train REF]`: the document on stdout.

The Rust program reads cog.yaml and passes the references; this file reads no
configuration. Arguments are parsed by hand because argparse takes longer to import than
a schema takes to build.
"""

from __future__ import annotations

import os
import sys

from .build import build
from .errors import SchemaError

USAGE = "usage: python -m tidegate.schema DIR [--predict REF] [--train REF]"
_BAD_USAGE = 64


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    refs: dict[str, str] = {}
    folders: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            print(USAGE)
            return 0
        if flag in ("--predict", "--train"):
            refs[flag] = value if equals else next(words, "")
        else:
            folders.append(word)
    if len(folders) != 1 or folders[0].startswith("-") or "" in refs.values():
        print(USAGE, file=sys.stderr)
        return _BAD_USAGE
    return _print(folders[0], refs.get("--predict"), refs.get("--train"))


def _print(folder: str, predictor_ref: str | None, train_ref: str | None) -> int:
    if predictor_ref is None:
        new = os.path.isfile(os.path.join(folder, "run.py"))
        predictor_ref = "run.py" if new else "predict.py"
    try:
        schema = build(folder, predictor_ref, train_ref)
    except SchemaError as err:
        print(err, file=sys.stderr)
        return 1
    import json

    try:
        print(json.dumps(schema.document, indent=2), flush=True)
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

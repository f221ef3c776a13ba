"""`python -m tidegate.schema DIR [--predict REF] [--train REF] [--hints]`: prints the document to stdout.

With `--hints`, the document also contains what only the server must know. The Rust program reads cog.yaml
and passes the references; this file reads no configuration. Arguments are parsed by hand because importing
argparse takes longer than building a schema.
"""

from __future__ import annotations

import os
import sys

from .build import build
from .errors import SchemaError

USAGE = "usage: python -m tidegate.schema DIR [--predict REF] [--train REF] [--hints]"
_BAD_USAGE = 64


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    refs: dict[str, str] = {}
    folders: list[str] = []
    with_hints = False
    arguments = iter(argv)
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if argument in ("-h", "--help"):
            print(USAGE)
            return 0
        if flag in ("--predict", "--train"):
            refs[flag] = value if equals else next(arguments, "")
        elif argument == "--hints":
            with_hints = True
        else:
            folders.append(argument)
    if len(folders) != 1 or folders[0].startswith("-") or "" in refs.values():
        print(USAGE, file=sys.stderr)
        return _BAD_USAGE
    return _print(folders[0], refs.get("--predict"), refs.get("--train"), with_hints=with_hints)


def _print(folder: str, predictor_ref: str | None, train_ref: str | None, *, with_hints: bool) -> int:
    if predictor_ref is None:
        has_run_py = os.path.isfile(os.path.join(folder, "run.py"))
        predictor_ref = "run.py" if has_run_py else "predict.py"
    try:
        schema = build(folder, predictor_ref, train_ref)
    except SchemaError as err:
        print(err, file=sys.stderr)
        return 1
    import json

    try:
        document = schema.document_with_hints() if with_hints else schema.document
        print(json.dumps(document, indent=2), flush=True)
    except BrokenPipeError:
        # The reader has closed the pipe. Without this, Python would report the error again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

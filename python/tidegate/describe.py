"""Describes the model's interface in a process of its own.

The schema builder parses source, and the parser with all it needs would stay in memory for as long as the
model is served: more than the rest of the child together. A fork that ends takes it along. It must be made
before the child has threads.
"""

import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from tidegate._native import Init
    from tidegate.schema import Parameter as SchemaParameter


class Parameter:
    """What the child has to know about one parameter."""

    __slots__ = ("is_list", "kind", "name", "optional")

    def __init__(self, name: str, kind: str, is_list: bool, optional: bool) -> None:
        """`kind` is `plain`, `path`, `file` or `secret`."""
        self.name = name
        self.kind = kind
        self.is_list = is_list
        self.optional = optional


class Description:
    """The model's interface. Nothing in it changes."""

    __slots__ = ("concurrency", "document", "inputs", "training_inputs")

    def __init__(
        self,
        document: "dict[str, Any]",
        concurrency: "int | None",
        inputs: "list[tuple[str, str, bool, bool]]",
        training: "list[tuple[str, str, bool, bool]]",
    ) -> None:
        """From what crossed the pipe."""
        self.document = document
        self.concurrency = concurrency
        self.inputs = [Parameter(*parts) for parts in inputs]
        self.training_inputs = [Parameter(*parts) for parts in training]

    def yields(self, component: str) -> bool:
        """Tell whether the result named `component` is declared as an iterator."""
        schemas: dict[str, dict[str, object]] = self.document["components"]["schemas"]
        output = schemas.get(component, {})
        return output.get("x-cog-array-type") == "iterator"


class Indescribable(Exception):
    """The builder's own words about what is wrong, and a traceback if it is the builder that is wrong."""

    def __init__(self, reason: str, traceback: "str | None") -> None:
        """Both are complete sentences."""
        super().__init__(reason)
        self.traceback = traceback


def describe(init: "Init") -> Description:
    """Build the schema. Raises `Indescribable`."""
    data = _in_fork(init)
    if data is None:
        data = _build(init)
    kind, *parts = marshal.loads(data)  # noqa: S302  # written by our own fork, a moment ago
    if kind == "error":
        raise Indescribable(*parts)
    return Description(*parts)


def _in_fork(init: "Init") -> "bytes | None":
    """Return what the fork has written; `None` if there can be no fork, or if it died."""
    read_fd, write_fd = os.pipe()
    try:
        pid = os.fork()
    except OSError:  # a limit on processes
        os.close(write_fd)
        os.close(read_fd)
        return None
    if pid == 0:
        _write_and_end(init, write_fd)
    os.close(write_fd)
    with open(read_fd, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return data or None


def _write_and_end(init: "Init", write_fd: int) -> "NoReturn":
    try:
        with open(write_fd, "wb") as pipe:
            pipe.write(_build(init))
    finally:
        # No exit handlers and no tracebacks: this is only a copy. Without data the child tries again.
        os._exit(0)


def _build(init: "Init") -> bytes:
    try:
        from tidegate import schema

        built = schema.build(init.model_dir, init.predictor_ref, init.train_ref)
        parameters = [_flat(inputs) for inputs in (built.inputs, built.training_inputs)]
        return marshal.dumps(("described", built.document, built.concurrency, *parameters))
    except Exception as error:
        from tidegate.report import load_reason, traceback_text
        from tidegate.schema import SchemaError

        known = isinstance(error, SchemaError)
        reason = str(error) if known else f"the model's interface cannot be read: {load_reason(error)}"
        return marshal.dumps(("error", reason, None if known else traceback_text(error)))


def _flat(inputs: "dict[str, SchemaParameter]") -> "list[tuple[str, str, bool, bool]]":
    return [(p.name, p.kind, p.is_list, p.optional) for p in inputs.values()]

"""Builds the model's schema in a forked process.

The schema builder parses source code, and the parser would stay in memory for as long as the model is
served: it needs more than the rest of the child. A fork that exits frees that memory. The fork must be made
before the child starts threads.
"""

import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from tidegate._native import InitMessage
    from tidegate.schema import Parameter


class ParameterInfo:
    """The type of one input parameter, as far as the child needs it."""

    __slots__ = ("is_list", "kind", "name", "optional")

    def __init__(self, name: str, kind: str, is_list: bool, optional: bool) -> None:
        """`kind` is `plain`, `path`, `file` or `secret`."""
        self.name = name
        self.kind = kind
        self.is_list = is_list
        self.optional = optional


class ModelInterface:
    """The model's inputs and outputs. Immutable."""

    __slots__ = ("concurrency", "document", "inputs", "training_inputs")

    def __init__(
        self,
        document: "dict[str, Any]",
        concurrency: "int | None",
        inputs: "list[tuple[str, str, bool, bool]]",
        training: "list[tuple[str, str, bool, bool]]",
    ) -> None:
        """Create it from the data that the fork has sent."""
        self.document = document
        self.concurrency = concurrency
        self.inputs = [ParameterInfo(*parts) for parts in inputs]
        self.training_inputs = [ParameterInfo(*parts) for parts in training]

    def yields(self, component: str) -> bool:
        """Return whether the output component is declared as an iterator."""
        schemas: dict[str, dict[str, object]] = self.document["components"]["schemas"]
        output = schemas.get(component, {})
        return output.get("x-cog-array-type") == "iterator"


class SchemaBuildError(Exception):
    """The schema cannot be built. `traceback` is set if the reason is a bug in the builder."""

    def __init__(self, reason: str, traceback: "str | None") -> None:
        """`reason` is a complete message for the user."""
        super().__init__(reason)
        self.traceback = traceback


def build_schema(init: "InitMessage") -> ModelInterface:
    """Build the schema. Raises `SchemaBuildError`."""
    data = _build_in_fork(init)
    if data is None:
        data = _build(init)
    kind, *parts = marshal.loads(data)  # noqa: S302  # written by our own fork
    if kind == "error":
        raise SchemaBuildError(*parts)
    return ModelInterface(*parts)


def _build_in_fork(init: "InitMessage") -> "bytes | None":
    """Return the data that the fork has written; `None` if it cannot be created, or if it died."""
    read_fd, write_fd = os.pipe()
    try:
        pid = os.fork()
    except OSError:  # a limit on processes
        os.close(write_fd)
        os.close(read_fd)
        return None
    if pid == 0:
        _write_and_exit(init, write_fd)
    os.close(write_fd)
    with open(read_fd, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    return data or None


def _write_and_exit(init: "InitMessage", write_fd: int) -> "NoReturn":
    try:
        with open(write_fd, "wb") as pipe:
            pipe.write(_build(init))
    finally:
        # No exit handlers and no tracebacks: this is only a copy. Without data the child builds it itself.
        os._exit(0)


def _build(init: "InitMessage") -> bytes:
    try:
        from tidegate import schema

        built = schema.build(init.model_dir, init.predictor_ref, init.train_ref)
        parameters = [_flatten(inputs) for inputs in (built.inputs, built.training_inputs)]
        return marshal.dumps(("described", built.document_with_hints(), built.concurrency, *parameters))
    except Exception as error:
        from tidegate.error_text import load_reason, traceback_text
        from tidegate.schema import SchemaError

        known = isinstance(error, SchemaError)
        reason = (
            str(error) if known else f"failed to read the model's inputs and outputs: {load_reason(error)}"
        )
        return marshal.dumps(("error", reason, None if known else traceback_text(error)))


def _flatten(inputs: "dict[str, Parameter]") -> "list[tuple[str, str, bool, bool]]":
    return [(p.name, p.kind, p.is_list, p.optional) for p in inputs.values()]

"""Conversion between custom Python types and JSON."""

from abc import abstractmethod
from typing import Any, ClassVar


class Coder:
    """Converts values of one type to JSON objects and back; a subclass defines the type.

    The server does not use coders: parameters and results have the types that the schema knows. A model
    that uses coders itself finds them with `lookup`.
    """

    _registered: ClassVar["dict[type[Coder], None]"] = {}  # in the order of registration

    @staticmethod
    def register(coder: "type[Coder]") -> None:
        """Registers a coder for `lookup`."""
        Coder._registered[coder] = None

    @staticmethod
    def lookup(tpe: Any) -> "Coder | None":
        """Returns a coder for this type, from the first registered class that supports it."""
        candidates = (coder.factory(tpe) for coder in Coder._registered)
        return next((coder for coder in candidates if coder is not None), None)

    @staticmethod
    @abstractmethod
    def factory(tpe: "type[Any]") -> "Coder | None":
        """Returns a coder for this type, or `None` if the class does not support it."""

    @abstractmethod
    def encode(self, x: Any) -> "dict[str, Any]":
        """Converts the value to a JSON object."""

    @abstractmethod
    def decode(self, x: "dict[str, Any]") -> Any:
        """Converts the JSON object to a value."""

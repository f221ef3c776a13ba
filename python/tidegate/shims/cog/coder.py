"""Types of a model's own, between Python and JSON."""

from abc import abstractmethod
from typing import Any, ClassVar


class Coder:
    """Turns values of one type into JSON objects and back; a subclass says which type.

    Nothing here asks for coders by itself: parameters and results are of the types that the schema knows.
    A model that uses coders on its own finds them with `lookup`.
    """

    _known: ClassVar["dict[type[Coder], None]"] = {}  # in the order in which they came

    @staticmethod
    def register(coder: "type[Coder]") -> None:
        """Makes a coder known to `lookup`."""
        Coder._known[coder] = None

    @staticmethod
    def lookup(tpe: Any) -> "Coder | None":
        """A coder for this type, of the first class that has one."""
        made = (coder.factory(tpe) for coder in Coder._known)
        return next((coder for coder in made if coder is not None), None)

    @staticmethod
    @abstractmethod
    def factory(tpe: "type[Any]") -> "Coder | None":
        """A coder for this type, or `None` if it is another class's business."""

    @abstractmethod
    def encode(self, x: Any) -> "dict[str, Any]":
        """The value as JSON has it."""

    @abstractmethod
    def decode(self, x: "dict[str, Any]") -> Any:
        """The value of what JSON has."""

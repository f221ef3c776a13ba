"""`Input(...)`: the description of a parameter, written as its default."""


class FieldInfo:
    """The arguments of one `Input`."""

    __slots__ = (
        "accept",
        "choices",
        "default",
        "deprecated",
        "description",
        "ge",
        "le",
        "max_length",
        "min_length",
        "regex",
    )

    def __init__(
        self,
        default: object = None,
        description: "str | None" = None,
        ge: "float | None" = None,
        le: "float | None" = None,
        min_length: "int | None" = None,
        max_length: "int | None" = None,
        regex: "str | None" = None,
        choices: "list[str | int] | None" = None,
        deprecated: "bool | None" = None,
        accept: "str | None" = None,
    ) -> None:
        """Stores the arguments; the server reads them from the source."""
        self.default = default
        self.description = description
        self.ge = ge
        self.le = le
        self.min_length = min_length
        self.max_length = max_length
        self.regex = regex
        self.choices = choices
        self.deprecated = deprecated
        self.accept = accept

    def __repr__(self) -> str:
        """Shows all arguments."""
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in sorted(self.__slots__))
        return f"FieldInfo({parts})"


def Input(default: object = None, *, default_factory: object = None, **details: object) -> object:
    """Describes a parameter; written as its default."""
    if default_factory is not None:
        raise TypeError("default_factory is not supported in Input(): give a literal with Input(default=...)")
    return FieldInfo(default, **details)

"""`BaseModel`: structured outputs as dataclasses without the decorator."""


class BaseModel:
    """Subclasses become dataclasses, unless they set `auto_dataclass=False`."""

    def __init_subclass__(cls, *, auto_dataclass: bool = True, init: bool = True, **options: object) -> None:
        """Makes the subclass a dataclass."""
        # Models without structured outputs do not need this import.
        from dataclasses import dataclass, is_dataclass

        super().__init_subclass__()
        primary, *others = cls.__bases__
        if not issubclass(primary, BaseModel):
            raise TypeError(f'Primary base class of "{cls.__name__}" must inherit from BaseModel')
        if not auto_dataclass:
            if primary is not BaseModel and "__dataclass_fields__" in primary.__dict__:
                raise ValueError(
                    f'"{cls.__name__}" has auto_dataclass=False, but its base class "{primary.__name__}" '
                    "is an automatic data class; their fields would not add up"
                )
            return
        for other in others:
            if is_dataclass(other):
                raise TypeError(
                    f'Cannot mixin dataclass "{other.__name__}" while inheriting from `BaseModel`'
                )
        dataclass(init=init, **options)(cls)

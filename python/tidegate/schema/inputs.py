"""Builds the `Input` component: one property for each parameter of `run`, `predict` or `train`.

`Parameter` has what the child needs to prepare a value for the call; `Inputs` has all parameters, the
component and the enums of its choices.
"""

from __future__ import annotations

import ast

from .annotations import parse
from .constraints import check_accept, check_choices, check_default, check_keywords
from .defaults import NotStatic, default_of, shorten_floats, value_of
from .errors import SourceLocation
from .input_calls import Keywords, input_keywords
from .input_types import InputType, input_type
from .outputs import title_of
from .symbols import Module

Json = dict[str, object]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_NUMBERS = (("ge", "minimum"), ("le", "maximum"))
_LENGTHS = (("min_length", "minLength"), ("max_length", "maxLength"))
_TEXTS = (("description", "description"), ("regex", "pattern"), ("accept", "x-cog-accept"))


class Parameter:
    """How one input is passed to user code."""

    __slots__ = ("is_list", "kind", "name", "optional")

    def __init__(self, name: str, kind: str, *, is_list: bool, optional: bool) -> None:
        """`kind` is `plain`, `path`, `file` or `secret`; `optional` means None is allowed."""
        self.name = name
        self.kind = kind
        self.is_list = is_list
        self.optional = optional

    def __repr__(self) -> str:
        """Show all attributes, for test failures."""
        details = f"{self.kind}, is_list={self.is_list}, optional={self.optional}"
        return f"Parameter({self.name}: {details})"


class Inputs:
    """The parameters of one function, and their JSON Schema."""

    __slots__ = ("enums", "omittable", "parameters", "properties", "required")

    def __init__(self) -> None:
        """Start empty; `read_inputs` adds the parameters in the order of declaration."""
        self.parameters: dict[str, Parameter] = {}
        self.properties: dict[str, Json] = {}
        self.required: list[str] = []
        self.enums: dict[str, Json] = {}
        #: Inputs that the schema requires, as Cog's does, although their default is None.
        self.omittable: dict[str, SourceLocation] = {}

    def component(self, title: str) -> Json:
        """Return the object schema."""
        schema: Json = {"title": title, "type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        return schema


class AnyInput(Inputs):
    """An input that may be any object."""

    __slots__ = ()

    def component(self, title: str) -> Json:
        """Return a schema that accepts any object."""
        return {"title": title, "type": "object", "additionalProperties": True}


def read_inputs(function: Function, module: Module, *, is_method: bool) -> Inputs:
    """Describe the parameters of `function`."""
    inputs = Inputs()
    for arg, default in _parameters(function, module, is_method=is_method):
        location = module.location(arg, arg.arg)
        if arg.annotation is None:
            if default is None:
                continue  # as in Cog: a parameter without annotation and default is not an input
            raise location.error(
                f"parameter '{arg.arg}' on {function.name} has no type annotation",
                f"annotate it, for example `{arg.arg}: str = {module.text(default)}`",
            )
        type_ = input_type(parse(arg.annotation, module), location)
        spec = _Spec(default, module, location)
        _add(inputs, arg.arg, type_, spec, annotation=module.text(arg.annotation))
    return inputs


def _parameters(
    function: Function, module: Module, *, is_method: bool
) -> list[tuple[ast.arg, ast.expr | None]]:
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(spec.defaults))
    pairs = list(zip(positional, missing + list(spec.defaults)))  # noqa: B905 - padded above
    if is_method:
        pairs = pairs[1:]
    for star in (spec.vararg, spec.kwarg):
        if star is not None and star.annotation is not None:
            raise module.location(star, star.arg).error(
                "typed_parameter has no identifier",
                f"replace `*{star.arg}` by one named parameter for each input",
            )
    pairs.extend(zip(spec.kwonlyargs, spec.kw_defaults))  # noqa: B905 - the grammar pairs them
    return pairs


class _Spec:
    """The default of a parameter: a plain value, or the keywords of an `Input`."""

    __slots__ = ("default", "has_default", "is_unresolved", "keywords", "location", "value")

    def __init__(self, expr: ast.expr | None, module: Module, location: SourceLocation) -> None:
        self.location = location
        self.keywords: Keywords = {}
        self.default: object = None
        self.has_default = False
        #: The value that the function gets; `default` is the one in the schema.
        self.value: object = None
        #: Whether the default is known only when the code runs.
        self.is_unresolved = False
        if expr is None:
            return
        keywords = input_keywords(expr, module)
        if keywords is None:
            self.default, self.has_default = _plain_default(expr, module, location), True
            self.value = self.default
            return
        self.keywords = keywords
        if "default_factory" in keywords:
            raise location.error(
                f"parameter '{location.parameter}': `default_factory` has no value until code runs",
                "give a literal `default=`, or None with an Optional type and fill it in later",
            )
        if "default" in keywords:
            self.has_default = True
            try:
                self.default = default_of(*keywords["default"])
                self.value = value_of(*keywords["default"])
            except NotStatic:
                # Cog reads a default that it cannot resolve as None, so the input becomes required
                # (or null, if Optional). Refusing would stop models that Cog serves.
                self.is_unresolved = True

    def get(self, keyword: str) -> object:
        """Return the value of a keyword of `Input`; None if it is absent or not static."""
        pair = self.keywords.get(keyword)
        if pair is None:
            return None
        try:
            return value_of(*pair)
        except NotStatic:
            return None

    def choices(self) -> list[object]:
        pair = self.keywords.get("choices")
        if pair is None:
            return []
        try:
            values = value_of(*pair, combine=True)
        except NotStatic:
            values = False
        if values is None:
            return []
        if isinstance(values, (list, dict)):
            return list(values)
        raise self.location.error(
            f"parameter '{self.location.parameter}': choices `{pair[1].text(pair[0])}` are not known "
            "before the code runs",
            'write them as a list of literals, `choices=["a", "b"]`, or as a module constant',
        )


def _plain_default(expr: ast.expr, module: Module, location: SourceLocation) -> object:
    try:
        return default_of(expr, module)
    except NotStatic:
        raise location.error(
            f"parameter '{location.parameter}': default `{module.text(expr)}` cannot be statically resolved",
            "use a literal or a module constant; for a computed value use "
            "`Optional[...] = None` and compute it in the function",
        ) from None


def _add(inputs: Inputs, name: str, type_: InputType, spec: _Spec, *, annotation: str) -> None:
    null_default = spec.has_default and spec.default is None
    # `token: Secret = None` is the documented way to make a credential optional; for every
    # other type Cog ignores a None that the annotation does not allow.
    nullable = type_.optional or (type_.kind == "secret" and not type_.is_list and null_default)
    has_default = spec.has_default and (nullable or not null_default)

    choices = spec.choices()
    if choices:
        inputs.enums[name] = _enum(name, type_, choices)
        prop: Json = {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}
    else:
        prop = {"title": title_of(name), **type_.schema}
    if has_default:
        prop["default"] = shorten_floats(spec.default)
    if nullable:
        prop["nullable"] = True
    _constrain(prop, spec)
    check_accept(prop, type_.kind, spec.location)
    check_keywords(prop, type_, annotation, spec.location)
    check_choices(choices, type_, spec.location)
    check_default(spec.value, prop, type_, choices, spec.location)
    prop["x-order"] = len(inputs.properties)

    inputs.properties[name] = prop
    if not has_default and not nullable:
        inputs.required.append(name)
        if null_default and not spec.is_unresolved:
            inputs.omittable[name] = spec.location
    inputs.parameters[name] = Parameter(name, type_.kind, is_list=type_.is_list, optional=nullable)


def _enum(name: str, type_: InputType, choices: list[object]) -> Json:
    return {
        "title": name,
        "description": "An enumeration.",
        "enum": [shorten_floats(choice) for choice in choices],
        "type": type_.item,
    }


def _constrain(prop: Json, spec: _Spec) -> None:
    for keyword, key in _TEXTS:
        text = spec.get(keyword)
        if isinstance(text, str):
            prop[key] = text
    for keyword, key in (*_NUMBERS, *_LENGTHS):
        number = spec.get(keyword)
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            prop[key] = shorten_floats(number)
    if spec.get("deprecated") is True:
        prop["deprecated"] = True

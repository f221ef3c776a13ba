"""Assembles the OpenAPI document: everything in it that is the same for every model.

The text of this document is a contract: clients and Replicate's tooling read it, so names, summaries and
operation ids are exactly Cog's, including oddities (the title of `TrainingOutput` is `Output`).
"""

from __future__ import annotations

from .inputs import Inputs

Json = dict[str, object]

COG_VERSION = "0.23.1"
_REF = "#/components/schemas/"


class Operation:
    """One of the two operations of a model, prediction and training, and its names in the document."""

    __slots__ = ("noun", "prefix", "title", "verb")

    def __init__(self, noun: str, prefix: str, verb: str) -> None:
        """`prefix` is the prefix of the input and output components: empty for predictions."""
        self.noun = noun
        self.title = noun.capitalize()
        self.prefix = prefix
        self.verb = verb


PREDICTION = Operation("prediction", "", "predict")
TRAINING = Operation("training", "Training", "train")


class Interface:
    """The inputs and the output of one operation."""

    __slots__ = ("inputs", "operation", "output", "streaming")

    def __init__(self, operation: Operation, inputs: Inputs, output: Json, *, streaming: bool) -> None:
        """`streaming` says whether clients may request server-sent events."""
        self.operation = operation
        self.inputs = inputs
        self.output = output
        self.streaming = streaming


def openapi(interfaces: list[Interface]) -> Json:
    """Assemble the document of a model."""
    schemas: Json = {}
    paths: Json = {
        "/": {"get": _operation("Root", "root__get", _ok({}))},
        "/health-check": {"get": _operation("Healthcheck", "healthcheck_health_check_get", _ok({}))},
    }
    for interface in interfaces:
        schemas.update(_components(interface, schemas))
        paths.update(_paths(interface))
    schemas["Status"] = {
        "title": "Status",
        "description": "An enumeration.",
        "enum": ["starting", "processing", "succeeded", "canceled", "failed"],
        "type": "string",
    }
    schemas.update(_validation_errors())
    return {
        "openapi": "3.0.2",
        "info": {"title": "Cog", "version": COG_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _components(interface: Interface, existing: Json) -> Json:
    operation = interface.operation
    input_name, output_name = f"{operation.prefix}Input", f"{operation.prefix}Output"
    return {
        input_name: interface.inputs.component(input_name),
        output_name: interface.output,
        **_enums(interface, existing),
        f"{operation.title}Request": {
            "title": f"{operation.title}Request",
            "type": "object",
            "properties": {"id": _titled("Id"), "input": {"$ref": _REF + input_name}},
        },
        f"{operation.title}Response": {
            "title": f"{operation.title}Response",
            "type": "object",
            "properties": {
                "input": {"$ref": _REF + input_name},
                "output": {"$ref": _REF + output_name},
                "id": _titled("Id"),
                "version": _titled("Version"),
                "created_at": _timestamp("Created At"),
                "started_at": _timestamp("Started At"),
                "completed_at": _timestamp("Completed At"),
                "status": _titled("Status"),
                "error": _titled("Error"),
                "logs": _titled("Logs"),
                "metrics": {"title": "Metrics", "type": "object"},
            },
        },
    }


def _enums(interface: Interface, existing: Json) -> Json:
    """Return the enums of this interface under unused names.

    An enum is named like its parameter, so `predict` and `train` can use the same name for different choices;
    then the second one gets a prefix, or the choices of one would validate the input of the other.
    """
    enums: Json = {}
    for name, enum in interface.inputs.enums.items():
        key = name
        if existing.get(name, enum) != enum:
            key = f"{interface.operation.noun}_{name}"
            interface.inputs.properties[name]["allOf"] = [{"$ref": _REF + key}]
            enum = {**enum, "title": key}
        enums[key] = enum
    return enums


def _paths(interface: Interface) -> Json:
    operation = interface.operation
    plural, id_name = f"{operation.noun}s", f"{operation.noun}_id"
    create = _operation(
        operation.verb.capitalize(),
        f"{operation.verb}_{plural}_post",
        _ok({"$ref": f"{_REF}{operation.title}Response"}) | _invalid(),
    )
    create["description"] = f"Run a single {operation.noun} on the model"
    create["requestBody"] = {"content": _json({"$ref": f"{_REF}{operation.title}Request"})}
    if interface.streaming:
        create["x-cog-streaming"] = True
    cancel = _operation("Cancel", f"cancel_{plural}__{id_name}__cancel_post", _ok({}) | _invalid())
    cancel["parameters"] = [
        {"in": "path", "name": id_name, "required": True, "schema": _titled(f"{operation.title} Id")}
    ]
    return {f"/{plural}": {"post": create}, f"/{plural}/{{{id_name}}}/cancel": {"post": cancel}}


def _validation_errors() -> Json:
    location = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    return {
        "HTTPValidationError": {
            "title": "HTTPValidationError",
            "type": "object",
            "properties": {
                "detail": {
                    "title": "Detail",
                    "type": "array",
                    "items": {"$ref": f"{_REF}ValidationError"},
                }
            },
        },
        "ValidationError": {
            "title": "ValidationError",
            "type": "object",
            "properties": {
                "loc": {"title": "Location", "type": "array", "items": location},
                "msg": _titled("Message"),
                "type": _titled("Error Type"),
            },
            "required": ["loc", "msg", "type"],
        },
    }


def _operation(summary: str, operation_id: str, responses: Json) -> Json:
    return {"summary": summary, "operationId": operation_id, "responses": responses}


def _ok(schema: Json) -> Json:
    return {"200": {"description": "Successful Response", "content": _json(schema)}}


def _invalid() -> Json:
    content = _json({"$ref": f"{_REF}HTTPValidationError"})
    return {"422": {"description": "Validation Error", "content": content}}


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _titled(title: str) -> Json:
    return {"title": title, "type": "string"}


def _timestamp(title: str) -> Json:
    return {"title": title, "type": "string", "format": "date-time"}

"""Builds the schema of a model from its references."""

from __future__ import annotations

import os

from tidegate.handler import is_script

from .document import PREDICTION, TRAINING, Interface, Operation, openapi
from .errors import SchemaError
from .function import ModelFunction, find_predictor, find_trainer
from .inputs import AnyInput, Parameter, read_inputs
from .outputs import output_schema
from .runpod_paths import OUTPUT, add_paths
from .symbols import ModelFolder

Json = dict[str, object]

HINTS = "x-tidegate"
"""The key of the hints in the document that the server reads. Clients do not see it."""


class ModelSchema:
    """The inputs, outputs and OpenAPI document of a model."""

    __slots__ = ("concurrency", "document", "hints", "inputs", "streaming", "training_inputs")

    def __init__(self, concurrency: int | None, interfaces: list[Interface], *, yields: bool = False) -> None:
        """`interfaces` has the prediction first, and the training if the model has one.

        `yields` says that the function for predictions is a generator.
        """
        self.document = openapi(interfaces)
        #: What the server must know and Cog's document does not say; empty for most models.
        self.hints: Json = _hints(interfaces, yields=yields)
        self.streaming: bool = interfaces[0].streaming
        self.concurrency = concurrency
        self.inputs: dict[str, Parameter] = interfaces[0].inputs.parameters
        self.training_inputs: dict[str, Parameter] = (
            interfaces[1].inputs.parameters if len(interfaces) > 1 else {}
        )

    def document_with_hints(self) -> Json:
        """Return the document for the server."""
        return {**self.document, HINTS: self.hints} if self.hints else self.document


def build(model_dir: str | os.PathLike[str], predictor_ref: str, train_ref: str | None = None) -> ModelSchema:
    """Build the schema of the model in `model_dir`; raise `SchemaError` where Cog would refuse to build.

    The references are those in cog.yaml: `predict.py:Predictor`, `train.py:train`.
    """
    if is_script(predictor_ref):
        schema = ModelSchema(None, [Interface(PREDICTION, AnyInput(), dict(OUTPUT), streaming=False)])
        add_paths(schema.document)
        return schema
    folder = ModelFolder(model_dir)
    predictor = _find_predictor(folder, predictor_ref, train_ref)
    interfaces = [_interface(predictor, PREDICTION)]
    if train_ref:
        interfaces.append(_interface(find_trainer(folder, train_ref), TRAINING))
    return ModelSchema(predictor.concurrency(), interfaces, yields=predictor.is_generator())


def _find_predictor(folder: ModelFolder, ref: str, train_ref: str | None) -> ModelFunction:
    try:
        return find_predictor(folder, ref)
    except SchemaError:
        if ref != train_ref:
            raise
        return find_trainer(folder, ref)  # a model that can only be trained


def _interface(target: ModelFunction, operation: Operation) -> Interface:
    inputs = read_inputs(target.function, target.module, is_method=target.is_method)
    output = output_schema(target.function, target.module)
    # Trainings have no event stream, whatever their decorators.
    streaming = operation is PREDICTION and target.is_streaming()
    return Interface(operation, inputs, output, streaming=streaming)


def _hints(interfaces: list[Interface], *, yields: bool) -> Json:
    hints: Json = {}
    optional = {
        f"{interface.operation.prefix}Input": list(interface.inputs.omittable)
        for interface in interfaces
        if interface.inputs.omittable
    }
    if optional:
        hints["optional"] = optional
        hints["warnings"] = [_omittable_warning(interfaces)]
    if yields and interfaces[0].output.get("x-cog-array-type") != "iterator":
        hints["yields"] = True
    return hints


def _omittable_warning(interfaces: list[Interface]) -> str:
    """Return one warning about all inputs with the default None whose type does not allow None."""
    # Predictions and trainings may have inputs of the same name.
    places = [
        f"`{name}` ({location.file}:{location.line})"
        for interface in interfaces
        for name, location in interface.inputs.omittable.items()
    ]
    return (
        f"{', '.join(places)}: the default is None, but the type is not Optional; requests may omit "
        "the input here, and must contain it on Cog; annotate it as `Optional[...]`"
    )

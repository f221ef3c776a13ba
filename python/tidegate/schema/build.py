"""Builds the schema of a model from its references."""

from __future__ import annotations

import os

from tidegate.handler import is_script

from .document import PREDICTION, TRAINING, Interface, Operation, openapi
from .function import ModelFunction, find_predictor, find_trainer
from .inputs import AnyInput, Parameter, read_inputs
from .outputs import output_schema
from .runpod_paths import OUTPUT, add_paths
from .symbols import ModelFolder


class ModelSchema:
    """The inputs, outputs and OpenAPI document of a model."""

    __slots__ = ("concurrency", "document", "inputs", "streaming", "training_inputs")

    def __init__(self, concurrency: int | None, interfaces: list[Interface]) -> None:
        """`interfaces` has the prediction first, and the training if the model has one."""
        self.document = openapi(interfaces)
        self.streaming: bool = interfaces[0].streaming
        self.concurrency = concurrency
        self.inputs: dict[str, Parameter] = interfaces[0].inputs.parameters
        self.training_inputs: dict[str, Parameter] = (
            interfaces[1].inputs.parameters if len(interfaces) > 1 else {}
        )


def build(model_dir: str | os.PathLike[str], predictor_ref: str, train_ref: str | None = None) -> ModelSchema:
    """Build the schema of the model in `model_dir`; raise `SchemaError` where Cog would refuse to build.

    The references are those in cog.yaml: `predict.py:Predictor`, `train.py:train`.
    """
    if is_script(predictor_ref):
        schema = ModelSchema(None, [Interface(PREDICTION, AnyInput(), dict(OUTPUT), streaming=False)])
        add_paths(schema.document)
        return schema
    folder = ModelFolder(model_dir)
    predictor = find_predictor(folder, predictor_ref)
    interfaces = [_interface(predictor, PREDICTION)]
    if train_ref:
        interfaces.append(_interface(find_trainer(folder, train_ref), TRAINING))
    return ModelSchema(predictor.concurrency(), interfaces)


def _interface(target: ModelFunction, operation: Operation) -> Interface:
    inputs = read_inputs(target.function, target.module, is_method=target.is_method)
    output = output_schema(target.function, target.module)
    # Trainings have no event stream, whatever their decorators.
    streaming = operation is PREDICTION and target.is_streaming()
    return Interface(operation, inputs, output, streaming=streaming)

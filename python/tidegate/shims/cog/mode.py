"""The mode that a model is started in."""

from enum import Enum


class Mode(Enum):
    """Predictions or trainings."""

    PREDICT = "predict"
    TRAIN = "train"

    def __str__(self) -> str:
        """The value."""
        return self.value

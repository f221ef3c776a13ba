"""What a model is started for."""

from enum import Enum


class Mode(Enum):
    """Predictions or trainings."""

    PREDICT = "predict"
    TRAIN = "train"

    def __str__(self) -> str:
        """The word alone."""
        return self.value

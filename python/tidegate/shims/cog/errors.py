"""Exceptions of `cog`. This package does not raise them; models and tools catch them by name."""


class CogError(Exception):
    """Base class of Cog's errors."""


class ConfigDoesNotExist(CogError):
    """There is no `cog.yaml`."""


class PredictorNotSet(CogError):
    """`cog.yaml` does not say what to run."""

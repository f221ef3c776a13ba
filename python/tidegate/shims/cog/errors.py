"""What `cog` raises. Nothing here does; models and tools catch them by name."""


class CogError(Exception):
    """Every error of Cog's."""


class ConfigDoesNotExist(CogError):
    """There is no `cog.yaml`."""


class PredictorNotSet(CogError):
    """`cog.yaml` does not say what to run."""

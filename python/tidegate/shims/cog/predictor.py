"""`BaseRunner`: an optional base class of class predictors."""

from tidegate.scope import current_scope


class BaseRunner:
    """Gives a model access to its running job. Override `run`, and `setup` to load something."""

    def setup(self, weights: "str | None" = None) -> None:
        """Called once, before the first job."""

    def run(self, *args: object, **kwargs: object) -> object:
        """Runs the model once."""
        if type(self).predict is not BaseRunner.predict:
            return self.predict(*args, **kwargs)
        raise NotImplementedError(f"{type(self).__name__} defines neither run() nor predict()")

    def predict(self, *args: object, **kwargs: object) -> object:
        """The old name of `run`."""
        return self.run(*args, **kwargs)

    @property
    def scope(self) -> object:
        """The running job, for metrics; outside of a job its methods do nothing."""
        return current_scope()

    def record_metric(self, key: str, value: object, mode: str = "replace") -> None:
        """Records a metric of the running job."""
        current_scope().record_metric(key, value, mode=mode)


class BasePredictor(BaseRunner):
    """The old name of `BaseRunner`."""

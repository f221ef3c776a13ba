"""What a model may say about its running job: metrics, and the caller's context.

The rules for names and types are Cog's. The server joins the values; here they are only checked, so that
a model hears about a mistake where it makes it.
"""

from tidegate import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidegate._native import Job

_LONGEST_NAME = 128
_MOST_SEGMENTS = 4
_MODES = {"replace": "replace", "incr": "increment", "increment": "increment", "append": "append"}
_TYPES = (bool, int, float, str, list, dict)


class Metrics:
    """The metrics of one job; does nothing outside of a job."""

    __slots__ = ("_job", "_types")

    def __init__(self, job: "Job | None") -> None:
        """Belongs to `job`, or to nobody."""
        self._job = job
        self._types: dict[str, type] = {}

    def record(self, key: str, value: object, mode: "str | None" = None) -> None:
        """Record a value. `mode` is `replace`, `incr` or `append`."""
        if self._job is None:
            return
        how = _MODES.get("replace" if mode is None else mode)
        if how is None:
            raise TypeError(f"unknown metric mode `{mode}`: use `replace`, `incr` or `append`")
        _check_name(key)
        kind = _kind_of(key, value)
        if how == "increment" and kind not in (int, float):
            raise TypeError(f"metric `{key}`: only int and float can be incremented, not {kind.__name__}")
        if kind is float and value - value != 0:  # type: ignore[operator]  # it is a float
            return  # NaN and infinity: a model must not fail for a number it only reports. Cog drops NaN too.
        self._lock_type(key, list if how == "append" else kind)
        self._job.metric(key, value, how)

    def delete(self, key: str) -> None:
        """Take a metric away; afterwards it may be recorded with another type."""
        if self._job is None:
            return
        _check_name(key)
        self._types.pop(key, None)
        self._job.metric(key, None, "replace")

    def __setitem__(self, key: str, value: object) -> None:
        """Record a value; `None` takes the metric away."""
        if value is None:
            self.delete(key)
        else:
            self.record(key, value)

    def __delitem__(self, key: str) -> None:
        """Take a metric away."""
        self.delete(key)

    def __repr__(self) -> str:
        """Say whose metrics these are."""
        return "Metrics()" if self._job is None else f"Metrics(job={self._job.id!r})"

    def _lock_type(self, key: str, kind: type) -> None:
        known = self._types.setdefault(key, kind)
        if known is not kind:
            raise TypeError(
                f"metric `{key}` is {known.__name__} and cannot become {kind.__name__}; delete it first"
            )


class Scope:
    """One job, as its own code sees it."""

    __slots__ = ("_context", "metrics")

    def __init__(self, job: "Job | None") -> None:
        """Belongs to `job`, or to nobody."""
        self.metrics = Metrics(job)
        self._context: dict[str, str] = {} if job is None else job.context

    @property
    def context(self) -> "dict[str, str]":
        """What the caller sent as `context`."""
        return self._context

    def record_metric(self, key: str, value: object, mode: "str | None" = None) -> None:
        """Do the same as `metrics.record`."""
        self.metrics.record(key, value, mode)

    def __repr__(self) -> str:
        """Say whose scope this is."""
        return f"Scope({self.metrics!r})"


def current_scope() -> Scope:
    """Return the scope of the calling code's job; outside of a job one that ignores everything."""
    job = _native.current_job()
    if job is None or job.ended:
        return Scope(None)
    return job.scope(Scope)


def _kind_of(key: str, value: object) -> type:
    for kind in _TYPES:  # bool before int: it is one
        if isinstance(value, kind):
            return kind
    raise TypeError(f"metric `{key}` is {type(value).__name__}: use bool, int, float, str, list or dict")


def _check_name(key: str) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a metric's name is str, not {type(key).__name__}")
    if not 1 <= len(key) <= _LONGEST_NAME:
        raise ValueError(f"a metric's name has 1 to {_LONGEST_NAME} characters, not {len(key)}")
    if key == "predict_time" or key.startswith("cog."):
        raise ValueError(f"the metric name `{key}` is reserved")
    segments = key.split(".")
    if len(segments) > _MOST_SEGMENTS:
        raise ValueError(f"the metric name `{key}` has more than {_MOST_SEGMENTS} parts")
    for segment in segments:
        if not _is_word(segment):
            raise ValueError(
                f"the metric name `{key}` is not valid: each part starts with a letter and holds letters, "
                "digits and single underscores"
            )


def _is_word(segment: str) -> bool:
    if not (segment.isascii() and segment[:1].isalpha()):
        return False
    return all(part.isalnum() for part in segment.split("_"))

"""The API of a running job for model code: metrics, and the client's context.

The rules for names and types are Cog's. The server combines the values; this module only checks them, so that
a mistake raises where the model makes it.
"""

from tidegate import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidegate._native import Job

_MAX_NAME_LENGTH = 128
_MAX_SEGMENTS = 4
_MODES = {"replace": "replace", "incr": "increment", "increment": "increment", "append": "append"}
_TYPES = (bool, int, float, str, list, dict)


class Metrics:
    """The metrics of one job; outside of a job every method does nothing."""

    __slots__ = ("_job", "_types")

    def __init__(self, job: "Job | None") -> None:
        """`job` is `None` outside of a job."""
        self._job = job
        self._types: dict[str, type] = {}

    def record(self, key: str, value: object, mode: "str | None" = None) -> None:
        """Record a value. `mode` is `replace`, `incr` or `append`."""
        if self._job is None:
            return
        wire_mode = _MODES.get("replace" if mode is None else mode)
        if wire_mode is None:
            raise TypeError(f"unknown metric mode `{mode}`: use `replace`, `incr` or `append`")
        _check_name(key)
        kind = _metric_type(key, value)
        if wire_mode == "increment" and kind not in (int, float):
            raise TypeError(f"metric `{key}`: only int and float can be incremented, not {kind.__name__}")
        if kind is float and value - value != 0:  # type: ignore[operator]  # it is a float
            return  # NaN and infinity are ignored: a metric must not fail the job. Cog drops NaN too.
        # As in Cog, the type is that of the items: appending to a scalar turns it into a list.
        self._lock_type(key, kind)
        self._job.metric(key, value, wire_mode)

    def delete(self, key: str) -> None:
        """Delete a metric; afterwards it may be recorded with another type."""
        if self._job is None:
            return
        _check_name(key)
        self._types.pop(key, None)
        self._job.metric(key, None, "replace")

    def __setitem__(self, key: str, value: object) -> None:
        """Record a value; `None` deletes the metric."""
        if value is None:
            self.delete(key)
        else:
            self.record(key, value)

    def __delitem__(self, key: str) -> None:
        """Delete a metric."""
        self.delete(key)

    def __repr__(self) -> str:
        """Show the id of the job."""
        return "Metrics()" if self._job is None else f"Metrics(job={self._job.id!r})"

    def _lock_type(self, key: str, kind: type) -> None:
        known = self._types.setdefault(key, kind)
        if known is not kind:
            raise TypeError(
                f"metric `{key}` is {known.__name__} and cannot become {kind.__name__}; delete it first"
            )


class Scope:
    """The running job, as model code sees it."""

    __slots__ = ("_context", "metrics")

    def __init__(self, job: "Job | None") -> None:
        """`job` is `None` outside of a job."""
        self.metrics = Metrics(job)
        self._context: dict[str, str] = {} if job is None else job.context

    @property
    def context(self) -> "dict[str, str]":
        """The `context` of the client's request."""
        return self._context

    def record_metric(self, key: str, value: object, mode: "str | None" = None) -> None:
        """Record a metric; the same as `metrics.record`."""
        self.metrics.record(key, value, mode)

    def __repr__(self) -> str:
        """Show the id of the job."""
        return f"Scope({self.metrics!r})"


def current_scope() -> Scope:
    """Return the scope of the current job; outside of a job its methods do nothing."""
    job = _native.current_job()
    if job is None or job.ended:
        return Scope(None)
    return job.scope(Scope)


def _metric_type(key: str, value: object) -> type:
    for kind in _TYPES:  # bool before int, because bool is a subclass of int
        if isinstance(value, kind):
            return kind
    raise TypeError(f"metric `{key}` is {type(value).__name__}: use bool, int, float, str, list or dict")


def _check_name(key: str) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a metric name must be str, not {type(key).__name__}")
    if not 1 <= len(key) <= _MAX_NAME_LENGTH:
        raise ValueError(f"a metric name must have 1 to {_MAX_NAME_LENGTH} characters, not {len(key)}")
    if key == "predict_time" or key.startswith("cog."):
        raise ValueError(f"the metric name `{key}` is reserved")
    rule = _broken_rule(key)
    if rule:
        raise ValueError(f"the metric name `{key}` is invalid: {rule}")


def _broken_rule(key: str) -> "str | None":
    """Return the rule for names that `key` breaks, in the words by which tests of Cog models know it."""
    if key.startswith("."):
        return "it must not start with a dot"
    if key.endswith("."):
        return "it must not end with a dot"
    segments = key.split(".")
    if not all(segments):
        return "it must not contain empty segments"
    if len(segments) > _MAX_SEGMENTS:
        return f"it must have at most {_MAX_SEGMENTS} dot-separated segments"
    for segment in segments:
        rule = _broken_segment_rule(segment)
        if rule:
            return f"its segment `{segment}` {rule}"
    return None


def _broken_segment_rule(segment: str) -> "str | None":
    if not (segment.isascii() and segment.replace("_", "").isalnum()) and segment.strip("_"):
        return "must contain only letters, digits and underscores"
    if not segment[0].isalpha():
        return "must start with a letter"
    if segment.endswith("_"):
        return "must end with a letter or digit"
    if "__" in segment:
        return "must not contain consecutive underscores"
    return None

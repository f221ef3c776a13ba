"""Each case uses the metrics API in one way; what it raises is part of the output."""

import os
from typing import Any

from cog import BasePredictor, current_scope

VALUES = {
    "int": 1,
    "float": 1.5,
    "bool": True,
    "str": "s",
    "list": [1, "a"],
    "dict": {"a": {"b": 1}},
    "huge": 10**20,
    "nan": float("nan"),
    "none": None,
    "bytes": b"x",
    "object": object(),
    "path": os,
}
NAMES = [
    "a", "A1", "a_b", "a.b.c.d", "a.b.c.d.e", "a__b", "_a", "a_", "1a", "", "a b", "a-b", "é", "predict_time",
    "predict_time.x", "x.predict_time", "cog.x", "cog", "cogs.x", "a.", ".a", "a" * 128, "a" * 129,
]  # fmt: skip


def values(self: "Predictor") -> None:
    for name, value in VALUES.items():
        self.attempt(f"value_{name}", lambda name=name, value=value: self.record_metric(f"v_{name}", value))


def names(self: "Predictor") -> None:
    for name in NAMES:
        self.attempt(f"name {name}", lambda name=name: self.record_metric(name, 1))


def modes(self: "Predictor") -> None:
    for mode in ("replace", "incr", "increment", "append"):
        for value in (1, 2.5, "s", True, [1], {"a": 1}):
            kind = type(value).__name__
            for _ in range(2):
                self.attempt(
                    f"{mode} {kind}",
                    lambda mode=mode, value=value, kind=kind: self.record_metric(f"{mode}_{kind}", value, mode=mode),
                )
    self.attempt("bad mode", lambda: self.record_metric("m", 1, mode="add"))


def types(self: "Predictor") -> None:
    for first in (1, 1.5, True, "s", [1], {"a": 1}):
        for second in (1, 1.5, True, "s", [1], {"a": 1}):
            name = f"{type(first).__name__}_{type(second).__name__}"
            self.record_metric(name, first)
            self.attempt(name, lambda name=name, second=second: self.record_metric(name, second))


def appends(self: "Predictor") -> None:
    """Append to a metric that is not a list yet; then record it again."""
    samples = (1, 1.5, True, "s", [1], {"a": 1})
    for first in samples:
        for second in samples:
            name = f"{type(first).__name__}_{type(second).__name__}"
            self.record_metric(name, first)
            self.attempt(
                f"append to {name}",
                lambda name=name, second=second: self.record_metric(name, second, mode="append"),
            )
            self.attempt(f"append again to {name}", lambda name=name: self.record_metric(name, 2, mode="append"))
            for third in samples:
                copy = f"{name}_then_{type(third).__name__}"
                self.record_metric(copy, first)
                self.attempt(
                    f"append to {copy}",
                    lambda copy=copy, second=second: self.record_metric(copy, second, mode="append"),
                )
                self.attempt(f"replace {copy}", lambda copy=copy, third=third: self.record_metric(copy, third))
    for first in samples:
        for second in samples:
            name = f"new_{type(first).__name__}_{type(second).__name__}"
            self.attempt(f"first {name}", lambda name=name, first=first: self.record_metric(name, first, mode="append"))
            self.attempt(f"next {name}", lambda name=name, second=second: self.record_metric(name, second, mode="append"))
    self.record_metric("counter", 1, mode="incr")
    self.attempt("append to a counter", lambda: self.record_metric("counter", 2, mode="append"))
    self.attempt("increment a list", lambda: self.record_metric("counter", 2, mode="incr"))


def dotted(self: "Predictor") -> None:
    self.record_metric("a.b", 1)
    self.record_metric("a.c", 2)
    self.record_metric("s", 1)
    self.attempt("under a scalar", lambda: self.record_metric("s.t", 2))
    self.record_metric("o.p", 1)
    self.attempt("over an object", lambda: self.record_metric("o", 2))


def mapping(self: "Predictor") -> None:
    metrics = self.scope.metrics
    metrics["kept"] = 1
    metrics["deleted"] = 1
    del metrics["deleted"]
    metrics["none"] = 1
    metrics["none"] = None
    metrics["method"] = 1
    metrics.delete("method")
    metrics["again"] = 1
    del metrics["again"]
    self.attempt("other type after delete", lambda: metrics.__setitem__("again", "s"))
    self.attempt("delete unknown", lambda: metrics.__delitem__("unknown"))
    self.attempt("record none", lambda: metrics.record("x", None))


def scope(self: "Predictor") -> None:
    current_scope().record_metric("by_scope", 1)
    self.scope.metrics.record("by_record", 2, mode="incr")
    self.record_metric("by_self", 3)


def fails(self: "Predictor") -> None:
    self.record_metric("before", 1)
    raise ValueError("after the metric")


class Predictor(BasePredictor):
    def setup(self) -> None:
        self.record_metric("outside", 1)  # no prediction: does nothing

    def attempt(self, what: str, action: Any) -> None:
        try:
            action()
        except BaseException as error:
            self.raised.append([what, type(error).__name__])

    def predict(self, case: str = "scope") -> Any:
        self.raised: list = []
        globals()[case](self)
        return self.raised

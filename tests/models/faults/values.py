"""Things to return that are no JSON, or too much of it."""

import collections
import dataclasses
import math
import time


def nan(**_):
    return math.nan


def infinity(**_):
    return [1, {"x": -math.inf}]


def plain_bytes(**_):
    return b"\xff\x00"


def an_object(**_):
    return object()


def surrogate(**_):
    return "half \ud800"


def surrogate_key(**_):
    return {"\udfff": 1}


def large_int(**_):
    return 1 << 4000


def tuple_key(**_):
    return {(1, 2): 3}


def mixed_keys(**_):
    return {1: "a", "1": "b", None: "c", True: "d"}


def nested_set(**_):
    return [{1, 2}, frozenset([3])]


def a_class(**_):
    return dict


def a_module(**_):
    return math


def a_lambda(**_):
    return lambda: 1


def cyclic_list(**_):
    value = [1]
    value.append(value)
    return value


def cyclic_dict(**_):
    value = {}
    value["self"] = [value]
    return value


class Endless:
    """Turns into a new one of itself each time somebody looks."""

    def dict(self):
        return {"next": Endless()}


def endless_objects(**_):
    return Endless()


def deep(number, **_):
    value = []
    for _i in range(number):
        value = [value]
    return value


def deep_dict(number, **_):
    value = {}
    for _i in range(number):
        value = {"x": value}
    return value


class Grows(dict):
    def items(self):
        self[len(self)] = 1
        return super().items()


def changes_while_read(**_):
    return Grows(a=1)


class Raises:
    @property
    def read(self):
        raise SystemExit("from a property")

    def model_dump(self):
        raise KeyboardInterrupt


def raises_when_read(**_):
    return Raises()


@dataclasses.dataclass
class Bad:
    x: object


def dataclass_with_object(**_):
    return Bad(object())


class Str(str):
    def __str__(self):
        raise RuntimeError("no text")

    encode = None


def lying_text(**_):
    return Str("text")


class Int(int):
    def __int__(self):
        raise RuntimeError

    __repr__ = __index__ = __int__


def lying_int(**_):
    return Int(7)


def endless_iterator(**_):
    """An iterator that is no generator and never ends."""

    class Count:
        def __iter__(self):
            return self

        def __next__(self):
            time.sleep(0.01)
            return 0

    return Count()


def huge_mapping(number, **_):
    return collections.OrderedDict((str(i), i) for i in range(number))


def text(number, **_):
    """Text of this many MiB."""
    return "t" * (number * 1024 * 1024)


def stream(number, **_):
    """This many pieces of one MiB."""
    piece = "p" * (1024 * 1024)
    for _i in range(number):
        yield piece


def empties(number, **_):
    for _i in range(number):
        yield ""


def endless(**_):
    print("begun", flush=True)
    i = 0
    while True:
        yield i
        i += 1
        time.sleep(0.002)


def endless_fast(**_):
    print("begun", flush=True)
    while True:
        yield "x" * 1000


def dies_after(number, **_):
    for i in range(number):
        yield i
    raise ValueError("in the middle")


def exits_after(number, **_):
    import os

    for i in range(number):
        yield i
    time.sleep(0.1)
    os._exit(3)


def close_raises(**_):
    """Clean-up that fails when the generator is closed."""
    try:
        print("begun", flush=True)
        while True:
            yield 1
            time.sleep(0.01)
    finally:
        raise RuntimeError("clean-up failed")


def ignores_close(**_):
    print("begun", flush=True)
    while True:
        try:
            yield 1
            time.sleep(0.01)
        except BaseException:
            print("still here")


def metrics(number, **_):
    """This many metrics, each with its own name."""
    from cog import current_scope

    scope = current_scope()
    for i in range(number):
        scope.record_metric(f"m{i}", i)
    return "measured"


def same_metric(number, **_):
    from cog import current_scope

    scope = current_scope()
    for i in range(number):
        scope.record_metric("m", i)
        scope.record_metric("list", i, mode="append")
    return "measured"


def odd_metrics(**_):
    """Every refused metric must only cost an exception."""
    from cog import current_scope

    scope = current_scope()
    deep = {}
    for _i in range(100_000):
        deep = {"x": deep}
    cyclic = []
    cyclic.append(cyclic)
    refused = []
    for name, value in [
        ("a.b.c.d", 1),
        ("a.b", 2),
        ("a", 3),
        ("." * 50, 1),
        ("x" * 10_000, 1),
        ("predict_time", -1),
        ("deep", deep),
        ("cyclic", cyclic),
        ("object", object()),
        ("nan", math.nan),
        ("text", "half \ud800"),
        ("nul\0", 1),
        ("", 1),
    ]:
        try:
            scope.record_metric(name, value)
        except BaseException as error:
            refused.append(f"{name[:20]}: {type(error).__name__}")
    return refused

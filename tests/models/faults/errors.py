"""Things to raise."""

import sys


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class Quits(Exception):
    def __str__(self):
        raise SystemExit(9)

    __repr__ = __str__


class Liar(Exception):
    """Says that it is something else."""

    @property
    def __class__(self):
        raise ValueError("whose class?")

    def __getattribute__(self, name):
        raise RuntimeError(f"no {name} for you")


class NotText(Exception):
    def __str__(self):
        return 7


class Meta(type):
    """A class that does not tell its name and knows no instances."""

    def __getattribute__(cls, name):
        if name in ("__qualname__", "__name__", "__module__", "__mro__"):
            raise SystemExit("no name")
        return super().__getattribute__(name)

    def __instancecheck__(cls, other):
        raise RuntimeError("no check")


class BadClass(Exception, metaclass=Meta):
    pass


def exit(**_):
    sys.exit("leaving")


def base(**_):
    raise BaseException("base")


def interrupt(**_):
    raise KeyboardInterrupt


def generator_exit(**_):
    raise GeneratorExit


def stop_iteration(**_):
    raise StopIteration("a value")


def stop_in_generator(**_):
    yield 1
    raise StopIteration("not allowed")


def recursion(**_):
    return recursion()


def memory_error(**_):
    return bytes(1 << 62)


def mute(**_):
    raise Mute


def quits(**_):
    raise Quits


def liar(**_):
    raise Liar("never seen")


def not_text(**_):
    raise NotText


def bad_class(**_):
    raise BadClass("odd")


def surrogate(**_):
    raise ValueError("half \ud800 a character, a NUL \0 and \x1b[31m red")


def huge(number, **_):
    raise ValueError("x" * number)


def group(**_):
    try:
        raise ValueError("first")
    except ValueError as error:
        error.__cause__ = error  # a cycle
        raise


def endless_chain(**_):
    error = None
    for i in range(5_000):
        later = ValueError(i)
        later.__context__ = error
        error = later
    raise error


def own_cancel(**_):
    """Raises what only the server may raise."""
    import cog

    raise cog.CancelationException

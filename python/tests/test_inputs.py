"""Conversion of the client's JSON to the model's arguments: files, secrets, defaults."""

from __future__ import annotations


def test_downloaded_files_become_paths(serve) -> None:
    child = serve("""
        from typing import Optional
        from cog import Path
        class Predictor:
            def predict(self, one: Path, many: list[Path], maybe: Optional[Path] = None) -> list[str]:
                values = [one, *many, maybe]
                return [f"{isinstance(v, Path)} {v}" for v in values]
    """)
    child.start(
        one="https://example.com/a",
        many=["https://example.com/b", "plain text"],
        maybe=None,
        extra={"files": {"/one": "/tmp/a", "/many/0": "/tmp/b"}},
    )
    assert child.finish().output == ["True /tmp/a", "True /tmp/b", "False plain text", "False None"]


def test_downloaded_files_are_opened_for_file_parameters_and_closed_after_the_job(serve) -> None:
    child = serve("""
        from cog import File
        kept = []
        class Predictor:
            def predict(self, f: File) -> list[str]:
                kept.append(f)
                return [f.read().decode(), *(str(k.closed) for k in kept)]
    """)
    path = child.scratch / "in.txt"
    path.write_text("content")
    for expected in (["content", "False"], ["content", "True", "False"]):
        child.start(f="https://example.com/in.txt", extra={"files": {"/f": str(path)}})
        assert child.finish().output == expected


def test_a_missing_file_is_an_input_error(serve) -> None:
    child = serve("""
        from cog import File
        class Predictor:
            def predict(self, f: File) -> str:
                return "v"
    """)
    child.start(f="https://example.com/x", extra={"files": {"/f": "/nonexistent"}})
    assert child.finish().error.startswith(
        "Input validation error: failed to open the downloaded file `/nonexistent`"
    )


def test_secrets_are_wrapped_in_lists_too(serve) -> None:
    child = serve("""
        from cog import Secret
        class Predictor:
            def predict(self, one: Secret, many: list[Secret]) -> list[str]:
                print(one, many)
                return [s.get_secret_value() for s in [one, *many]]
    """)
    outcome = child.run(one="a", many=["b", "c"])
    assert outcome.output == ["a", "b", "c"]
    assert outcome.logs == "********** [Secret(**********), Secret(**********)]\n"


def test_input_defaults_are_unwrapped(serve) -> None:
    child = serve("""
        from cog import BasePredictor, Input
        class Predictor(BasePredictor):
            def predict(self, a: int = Input(default=3, ge=0), *, b: str = Input(default="x", choices=["x", "y"])) -> list[str]:
                return [repr(a), repr(b)]
    """)  # noqa: E501
    assert child.run().output == ["3", "'x'"]


def test_defaults_behind_a_decorator_are_unwrapped(serve) -> None:
    child = serve("""
        import functools
        from cog import Input
        def decorated(f):
            @functools.wraps(f)
            def wrapper(*args, **kwargs):
                return f(*args, **kwargs)
            return wrapper
        class Predictor:
            @decorated
            def predict(self, a: int = Input(default=3)) -> int:
                return a
    """)
    assert child.run().output == 3


def test_a_pointer_with_a_slash_in_the_name_is_escaped() -> None:
    from tidegate import inputs

    assert inputs.pointer("a/b~c") == "/a~1b~0c"

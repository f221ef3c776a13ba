"""Converts the client's JSON object to keyword arguments.

Most models take plain JSON, which needs no conversion. The server has already downloaded files; this module
only wraps local paths in the right class. Values are not checked: the server has validated them.
"""

from tidegate.errors import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

    from tidegate._native import Job
    from tidegate.schema_fork import ParameterInfo


def plain(job: "Job") -> "dict[str, object]":
    """Return the arguments of a function without files or secrets."""
    return job.input


def converter(parameters: "list[ParameterInfo]") -> "Callable[[Job], dict[str, object]]":
    """Return the function that converts inputs; called once, when the model is loaded."""
    special = [parameter for parameter in parameters if parameter.kind != "plain"]
    if not special:
        return plain
    import cog

    makers: dict[str, Callable[[str], object]] = {"path": cog.Path, "file": _open, "secret": cog.Secret}

    def convert(job: "Job") -> "dict[str, object]":
        kwargs = job.input
        files = job.files_by_pointer or {}
        for parameter in special:
            value = kwargs.get(parameter.name)
            if value is None:
                continue
            make = makers[parameter.kind]
            json_pointer = pointer(parameter.name)
            if isinstance(value, list):
                kwargs[parameter.name] = [
                    _convert(parameter.kind, make, item, files.get(f"{json_pointer}/{index}"))
                    for index, item in enumerate(value)
                ]
            else:
                kwargs[parameter.name] = _convert(parameter.kind, make, value, files.get(json_pointer))
        return kwargs

    return convert


def pointer(name: str) -> str:
    """Return the JSON pointer (RFC 6901) of a parameter."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def close_files(kwargs: "dict[str, object]") -> None:
    """Close the files that were opened for `File` parameters."""
    for value in kwargs.values():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, _file_type()):
                item.close()


def _convert(kind: str, make: "Callable[[str], object]", value: object, local_path: "str | None") -> object:
    if kind == "secret":
        return make(value) if isinstance(value, str) else value
    # Only downloaded files become paths; any other string is passed on unchanged.
    return value if local_path is None else make(local_path)


def _open(local_path: str) -> "BufferedReader":
    try:
        return open(local_path, "rb")  # closed by `close_files` when the job ends
    except OSError as error:
        raise InputError(f"failed to open the downloaded file `{local_path}`: {error}") from error


def _file_type() -> "type[BufferedReader]":
    from io import BufferedReader

    return BufferedReader

"""The caller's JSON object as keyword arguments.

Most models take plain JSON and pay nothing here. Files have been fetched by the server already; this
only puts local paths into the right class. Values are not checked: the server has done so.
"""

from tidegate.errors import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

    from tidegate._native import Job
    from tidegate.describe import Parameter


def plain(job: "Job") -> "dict[str, object]":
    """Return the arguments of a function without files or secrets."""
    return job.input


def converter(parameters: "list[Parameter]") -> "Callable[[Job], dict[str, object]]":
    """Decide at load how a function's arguments are made."""
    special = [parameter for parameter in parameters if parameter.kind != "plain"]
    if not special:
        return plain
    import cog

    makers: dict[str, Callable[[str], object]] = {"path": cog.Path, "file": _opened, "secret": cog.Secret}

    def convert(job: "Job") -> "dict[str, object]":
        kwargs = job.input
        files = job.files_by_pointer or {}
        for parameter in special:
            value = kwargs.get(parameter.name)
            if value is None:
                continue
            make = makers[parameter.kind]
            place = pointer(parameter.name)
            if isinstance(value, list):
                kwargs[parameter.name] = [
                    _one(parameter.kind, make, item, files.get(f"{place}/{index}"))
                    for index, item in enumerate(value)
                ]
            else:
                kwargs[parameter.name] = _one(parameter.kind, make, value, files.get(place))
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


def _one(kind: str, make: "Callable[[str], object]", value: object, local: "str | None") -> object:
    if kind == "secret":
        return make(value) if isinstance(value, str) else value
    # Only fetched files become paths; any other text is the model's own affair.
    return value if local is None else make(local)


def _opened(local: str) -> "BufferedReader":
    try:
        return open(local, "rb")  # closed by `close_files` when the job has ended
    except OSError as error:
        raise InputError(f"the fetched file `{local}` cannot be opened: {error}") from error


def _file_type() -> "type[BufferedReader]":
    from io import BufferedReader

    return BufferedReader

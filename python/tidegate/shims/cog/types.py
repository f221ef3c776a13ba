"""Types for parameters and results.

The server downloads files before a job starts, so `Path` is a local path and nothing is downloaded here,
except by a model that creates a `URLFile` itself.
"""

import io
import os
import pathlib
from collections.abc import AsyncIterator, Iterator

#: Characters that a file name cannot contain.
FILENAME_ILLEGAL_CHARS = {"/", "\0"}
#: The maximum length of a name from `get_filename`, in bytes.
FILENAME_MAX_LENGTH = 200


def get_filename(url: str) -> str:
    """The file name for a URL: its last path segment, or `file` with the extension of its media type."""
    from urllib.parse import unquote_plus, urlsplit

    parts = urlsplit(url)
    if parts.scheme == "data":
        return "file" + _extension(url)
    name = _shortened(unquote_plus(parts.path.rpartition("/")[2]))
    return "".join("_" if char in FILENAME_ILLEGAL_CHARS else char for char in name)


def _extension(url: str) -> str:
    """The extension for the media type of a `data:` URL; empty if the type has none."""
    import mimetypes

    media_type, comma, _ = url.partition(":")[2].partition(",")
    if not comma:
        raise ValueError("a `data:` URL needs a comma before its content")
    kind = media_type.partition(";")[0].strip().lower()
    return mimetypes.guess_extension(kind if kind.count("/") == 1 else "text/plain") or ""


def _shortened(name: str) -> str:
    """The name, shortened in the middle: `~` replaces the omitted part, the extension is kept."""
    if len(name.encode()) <= FILENAME_MAX_LENGTH:
        return name
    stem, ending = os.path.splitext(name)
    max_bytes = FILENAME_MAX_LENGTH - len(ending.encode()) - 1
    return f"{stem.encode()[:max_bytes].decode(errors='ignore')}~{ending}"


class Secret:
    """A string that is not shown when it is printed."""

    __slots__ = ("secret_value",)

    def __init__(self, secret_value: "str | None" = None) -> None:
        """Stores the string."""
        object.__setattr__(self, "secret_value", secret_value)

    def __setattr__(self, name: str, value: object) -> None:
        """Raises an error: a secret is immutable."""
        raise AttributeError(f"cannot assign to {name!r} of a Secret")

    def __reduce__(self) -> "tuple[type, tuple[str | None]]":
        """Lets copies and pickles call the constructor, because `__setattr__` raises."""
        return type(self), (self.secret_value,)

    def __eq__(self, other: object) -> bool:
        """Compares the strings."""
        return isinstance(other, Secret) and self.secret_value == other.secret_value

    def __hash__(self) -> int:
        """Hashes the string."""
        return hash(self.secret_value)

    def __repr__(self) -> str:
        """Shows asterisks."""
        return f"Secret({self})"

    def __str__(self) -> str:
        """Shows asterisks."""
        return "" if self.secret_value is None else "**********"

    def get_secret_value(self) -> "str | None":
        """The string itself."""
        return self.secret_value


class Path(type(pathlib.Path())):  # type: ignore[misc]  # the concrete class of this system
    """A file: a local path as an input, a file to upload as a result."""

    @classmethod
    def validate(cls, value: object) -> pathlib.Path:
        """Converts a string to a path; URLs are downloaded into memory first."""
        if isinstance(value, pathlib.Path):
            return value
        text = str(value)
        if text.startswith(("http://", "https://", "data:")):
            return URLPath(source=text, filename=get_filename(text), fileobj=File.validate(text))
        return cls(text)


class File(io.IOBase):
    """An open file. Deprecated; use `Path`."""

    @classmethod
    def validate(cls, value: object) -> io.IOBase:
        """Opens the file behind a URL."""
        if isinstance(value, io.IOBase):
            return value
        text = str(value)
        if text.startswith("data:"):
            from urllib.request import urlopen

            with urlopen(text) as response:  # noqa: S310  # a data: URL, as just checked
                return io.BytesIO(response.read())
        if text.startswith(("http://", "https://")):
            return URLFile(text)
        scheme = text.partition(":")[0]
        raise ValueError(f"'{scheme}' is not a valid URL scheme. 'data', 'http', or 'https' is supported.")


class URLFile(io.IOBase):
    """A file behind a URL, opened when it is first read."""

    def __init__(self, url: str, filename: "str | None" = None) -> None:
        """Stores the URL."""
        if not url.startswith(("http://", "https://")):
            raise ValueError("URLFile requires URL to conform to HTTP or HTTPS protocol")
        self.name = filename or os.path.basename(url.partition("?")[0])
        self._url = url
        self._response: io.IOBase | None = None

    def _open(self) -> io.IOBase:
        if self._response is None:
            from urllib.request import Request, urlopen

            agent = os.environ.get("COG_USER_AGENT")
            request = Request(self._url, headers={"User-Agent": agent} if agent else {})  # noqa: S310
            self._response = urlopen(request, timeout=10)  # noqa: S310  # http or https, as checked above
        return self._response

    def read(self, size: int = -1) -> bytes:
        """Reads from the response."""
        return self._open().read(size)

    def readable(self) -> bool:
        """Returns true."""
        return True

    def __iter__(self) -> "Iterator[bytes]":
        """Iterates over the lines of the response."""
        return iter(self._open())

    def __repr__(self) -> str:
        """Shows the URL."""
        return f"<URLFile for {self._url!r}>"


class URLPath(type(pathlib.Path())):  # type: ignore[misc]  # as above
    """A path whose content has not been written to disk yet."""

    def __new__(cls, *, source: str, filename: str, fileobj: io.IOBase) -> "URLPath":
        """Creates a path with the file name."""
        return super().__new__(cls, filename)

    def __init__(self, *, source: str, filename: str, fileobj: io.IOBase) -> None:
        """Stores the source of the content."""
        if (
            type(pathlib.Path()).__init__ is not object.__init__
        ):  # from Python 3.12 on, paths are created here
            super().__init__(filename)
        self.source = source
        self.filename = filename
        self.fileobj = fileobj
        self._local: Path | None = None

    def convert(self) -> Path:
        """Writes the content to a temporary file, once."""
        if self._local is None:
            import shutil
            import tempfile

            with tempfile.NamedTemporaryFile(suffix=self.filename[-200:], delete=False) as out:
                shutil.copyfileobj(self.fileobj, out)
            self._local = Path(out.name)
        return self._local

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the temporary file."""
        if self._local is not None:
            self._local.unlink(missing_ok=missing_ok)

    def __str__(self) -> str:
        """The URL."""
        return self.source


class ConcatenateIterator(Iterator):
    """Items that are concatenated for display: the tokens of a text."""


class AsyncConcatenateIterator(AsyncIterator):
    """The same for asynchronous models."""

"""Types for parameters and results.

The server fetches files before a job begins, so `Path` is a local path and nothing is downloaded here,
except by a model that makes a `URLFile` itself.
"""

import io
import os
import pathlib
from collections.abc import AsyncIterator, Iterator

#: What the name of a file cannot hold.
FILENAME_ILLEGAL_CHARS = {"/", "\0"}
#: The longest name that `get_filename` gives, in bytes.
FILENAME_MAX_LENGTH = 200


def get_filename(url: str) -> str:
    """A name for the file behind an address: its last part, or `file` with an ending that fits its type."""
    from urllib.parse import unquote_plus, urlsplit

    parts = urlsplit(url)
    if parts.scheme == "data":
        return "file" + _extension(url)
    name = _shortened(unquote_plus(parts.path.rpartition("/")[2]))
    return "".join("_" if letter in FILENAME_ILLEGAL_CHARS else letter for letter in name)


def _extension(url: str) -> str:
    """The ending for the content of a `data:` address; none for types that have none."""
    import mimetypes

    about, comma, _ = url.partition(":")[2].partition(",")
    if not comma:
        raise ValueError("a `data:` address needs a comma before its content")
    kind = about.partition(";")[0].strip().lower()
    return mimetypes.guess_extension(kind if kind.count("/") == 1 else "text/plain") or ""


def _shortened(name: str) -> str:
    """The name with its ending kept and a `~` where something was cut out."""
    if len(name.encode()) <= FILENAME_MAX_LENGTH:
        return name
    stem, ending = os.path.splitext(name)
    room = FILENAME_MAX_LENGTH - len(ending.encode()) - 1
    return f"{stem.encode()[:room].decode(errors='ignore')}~{ending}"


class Secret:
    """Text that does not show itself."""

    __slots__ = ("secret_value",)

    def __init__(self, secret_value: "str | None" = None) -> None:
        """Keeps the text."""
        object.__setattr__(self, "secret_value", secret_value)

    def __setattr__(self, name: str, value: object) -> None:
        """A secret does not change."""
        raise AttributeError(f"cannot assign to {name!r} of a Secret")

    def __reduce__(self) -> "tuple[type, tuple[str | None]]":
        """Copies and pickles are made anew; `__setattr__` would refuse the usual way."""
        return type(self), (self.secret_value,)

    def __eq__(self, other: object) -> bool:
        """Equal texts are equal secrets."""
        return isinstance(other, Secret) and self.secret_value == other.secret_value

    def __hash__(self) -> int:
        """As its text."""
        return hash(self.secret_value)

    def __repr__(self) -> str:
        """Stars."""
        return f"Secret({self})"

    def __str__(self) -> str:
        """Stars."""
        return "" if self.secret_value is None else "**********"

    def get_secret_value(self) -> "str | None":
        """The text itself."""
        return self.secret_value


class Path(type(pathlib.Path())):  # type: ignore[misc]  # the concrete class of this system
    """A file: given to a model as a local path, returned by it as a result."""

    @classmethod
    def validate(cls, value: object) -> pathlib.Path:
        """A path for text; addresses are fetched into memory first."""
        if isinstance(value, pathlib.Path):
            return value
        text = str(value)
        if text.startswith(("http://", "https://", "data:")):
            return URLPath(source=text, filename=get_filename(text), fileobj=File.validate(text))
        return cls(text)


class File(io.IOBase):
    """An open file. Old; `Path` is the better choice."""

    @classmethod
    def validate(cls, value: object) -> io.IOBase:
        """An open file for an address."""
        if isinstance(value, io.IOBase):
            return value
        text = str(value)
        if text.startswith("data:"):
            from urllib.request import urlopen

            with urlopen(text) as response:  # noqa: S310  # a data: address, as just checked
                return io.BytesIO(response.read())
        if text.startswith(("http://", "https://")):
            return URLFile(text)
        scheme = text.partition(":")[0]
        raise ValueError(f"'{scheme}' is not a valid URL scheme. 'data', 'http', or 'https' is supported.")


class URLFile(io.IOBase):
    """A file behind an address, opened when it is first read."""

    def __init__(self, url: str, filename: "str | None" = None) -> None:
        """Only remembers the address."""
        if not url.startswith(("http://", "https://")):
            raise ValueError("URLFile requires URL to conform to HTTP or HTTPS protocol")
        self.name = filename or os.path.basename(url.partition("?")[0])
        self._url = url
        self._response: io.IOBase | None = None

    def _opened(self) -> io.IOBase:
        if self._response is None:
            from urllib.request import Request, urlopen

            agent = os.environ.get("COG_USER_AGENT")
            request = Request(self._url, headers={"User-Agent": agent} if agent else {})  # noqa: S310
            self._response = urlopen(request, timeout=10)  # noqa: S310  # http or https, as checked above
        return self._response

    def read(self, size: int = -1) -> bytes:
        """Reads from the response."""
        return self._opened().read(size)

    def readable(self) -> bool:
        """Yes."""
        return True

    def __iter__(self) -> "Iterator[bytes]":
        """Lines of the response."""
        return iter(self._opened())

    def __repr__(self) -> str:
        """Shows the address."""
        return f"<URLFile for {self._url!r}>"


class URLPath(type(pathlib.Path())):  # type: ignore[misc]  # as above
    """A path whose content is still behind an address."""

    def __new__(cls, *, source: str, filename: str, fileobj: io.IOBase) -> "URLPath":
        """Looks like a path with the address's last part."""
        return super().__new__(cls, filename)

    def __init__(self, *, source: str, filename: str, fileobj: io.IOBase) -> None:
        """Only remembers where to read from."""
        if type(pathlib.Path()).__init__ is not object.__init__:  # from Python 3.12 on, paths are made here
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
        """The address."""
        return self.source


class ConcatenateIterator(Iterator):
    """Items that belong together when they are shown: the tokens of a text."""


class AsyncConcatenateIterator(AsyncIterator):
    """The same for asynchronous models."""

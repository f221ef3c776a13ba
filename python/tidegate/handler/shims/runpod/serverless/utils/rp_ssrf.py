"""Fetches only what lies outside: no address of this machine or its network.

`RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS=1` lets everything through.
"""

import http.client
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, urljoin, urlsplit

_MAX_REDIRECTS = 5
_DEFAULT_MAX = 5 * 1024**3


class SSRFError(ValueError):
    """The address must not be fetched from here."""


class DownloadError(OSError):
    """The address cannot be fetched."""


def max_download_bytes() -> "int | None":
    """Return how much one download may bring; `None` is any amount."""
    try:
        limit = int(os.environ.get("RUNPOD_MAX_DOWNLOAD_BYTES", _DEFAULT_MAX))
    except ValueError:
        limit = _DEFAULT_MAX
    return limit if limit > 0 else None


def is_safe_address(ip: str) -> bool:
    """Tell whether an address belongs to the internet at large."""
    address = ipaddress.ip_address(ip)
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return address.is_global and not address.is_multicast


def resolve_and_validate(host: str, port: int) -> list[str]:
    """Return the addresses of a host; all of them must be safe."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not _private_allowed():
        for address in addresses:
            if not is_safe_address(address):
                raise SSRFError(
                    f"`{host}` is {address}, which is not a public address; set "
                    "RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS=1 if that is meant"
                )
    return addresses


@contextmanager
def safe_get(url: str, *, timeout: float, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
    """Fetch an address, and where it leads."""
    for _ in range(_MAX_REDIRECTS + 1):
        connection = _connected(urlsplit(url), timeout)
        try:
            parts = urlsplit(url)
            connection.request(
                "GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), headers=headers
            )
            response = connection.getresponse()
            onward = response.getheader("Location") if response.status in (301, 302, 303, 307, 308) else None
            if onward is None:
                if response.status >= 400:
                    raise DownloadError(f"{response.status} {response.reason} for {url}")
                yield response
                return
            url = urljoin(url, onward)
        except http.client.HTTPException as error:
            raise DownloadError(f"{url} cannot be fetched: {error!r}") from error
        finally:
            connection.close()
    raise DownloadError(f"more than {_MAX_REDIRECTS} redirects")


def chunks_of(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Read the body piece by piece; more than the limit is an error."""
    limit, seen = max_download_bytes(), 0
    while piece := response.read(1024 * 1024):
        seen += len(piece)
        if limit is not None and seen > limit:
            raise SSRFError(f"the download is larger than {limit} bytes")
        yield piece


def _private_allowed() -> bool:
    return os.environ.get("RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS", "").lower() in ("1", "true", "yes")


def _connected(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    """Connect to an address that was checked: the name is not looked up again."""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SSRFError(f"only http and https can be fetched, not `{parts.scheme}`")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    addresses = resolve_and_validate(parts.hostname, port)
    connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout)
    last: OSError = OSError(f"`{parts.hostname}` has no address")
    for address in addresses:
        try:
            plain = socket.create_connection((address, port), timeout)
        except OSError as error:
            last = error
            continue
        context = ssl.create_default_context() if secure else None
        connection.sock = context.wrap_socket(plain, server_hostname=parts.hostname) if context else plain
        return connection
    raise last

"""Downloads from public addresses only: none of this machine or its network.

`RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS=1` allows all addresses, and `RUNPOD_MAX_DOWNLOAD_BYTES` limits the size
of one download.
"""

import http.client
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

_ALLOW_PRIVATE = "RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS"
_REDIRECTS = (301, 302, 303, 307, 308)
_DEFAULT_MAX = 5 * 1024**3
_CHUNK = 1024 * 1024
# Addresses of carrier-grade NAT; older Python versions treat them as public.
_SHARED = ipaddress.ip_network("100.64.0.0/10")


class SSRFError(ValueError):
    """The URL must not be fetched from this machine."""


def max_download_bytes() -> int:
    """Return the maximum size of one download."""
    try:
        limit = int(os.environ.get("RUNPOD_MAX_DOWNLOAD_BYTES", _DEFAULT_MAX))
    except ValueError:
        limit = _DEFAULT_MAX
    return limit if limit > 0 else _DEFAULT_MAX


def is_safe_address(ip: str) -> bool:
    """Return whether an address is public."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    shared = address.version == 4 and address in _SHARED
    return address.is_global and not (shared or address.is_multicast or address.is_reserved)


def resolve_and_validate(host: str, port: int) -> list[str]:
    """Return the addresses of a host; raise an error unless all of them are public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise SSRFError(f"could not resolve host {host!r}: {error}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise SSRFError(f"no addresses resolved for host {host!r}")
    if not _private_allowed():
        for address in addresses:
            if not is_safe_address(address):
                raise SSRFError(f"host {host!r} resolves to non-public address {address}")
    return addresses


class Response:
    """A response with the part of `requests.Response` that downloads need."""

    def __init__(
        self, url: str, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        """Keep the connection open until `close`."""
        self.url = url
        self.status_code = response.status
        self.reason = response.reason
        self.headers = response.headers
        self._connection = connection
        self._response = response

    def iter_content(self, chunk_size: int = _CHUNK) -> Iterator[bytes]:
        """Read the body in chunks."""
        try:
            while chunk := self._response.read(chunk_size):
                yield chunk
        except http.client.HTTPException as error:
            raise requests_error(f"{self.url} was cut off: {error!r}") from error

    @property
    def content(self) -> bytes:
        """Read the whole body."""
        return b"".join(self.iter_content())

    @property
    def ok(self) -> bool:
        """Return whether the status is not an error."""
        return self.status_code < 400

    def raise_for_status(self) -> None:
        """Raise if the status is an error."""
        if not self.ok:
            kind = "Client" if self.status_code < 500 else "Server"
            raise requests_error(
                f"{self.status_code} {kind} Error: {self.reason} for url: {self.url}", "HTTPError"
            )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> "Response":
        """Return the response."""
        return self

    def __exit__(self, *_details: object) -> None:
        """Close the connection."""
        self.close()


def safe_get(
    url: str,
    *,
    stream: bool = True,
    timeout: float = 30,
    headers: "dict[str, str] | None" = None,
    max_bytes: "int | None" = None,
    max_redirects: int = 5,
) -> Response:
    """Fetch a URL and follow redirects. The body is read on demand, with or without `stream`."""
    limit, current = max_download_bytes() if max_bytes is None else max_bytes, url
    for _ in range(max_redirects + 1):
        response = _request(current, timeout, headers or {})
        if response.status_code not in _REDIRECTS:
            declared = response.headers.get("Content-Length", "")
            if declared.isdigit() and int(declared) > limit:
                response.close()
                raise SSRFError(f"download exceeds size cap: {declared} > {limit} bytes")
            return response
        response.close()
        location = response.headers.get("Location")
        if not location:
            raise SSRFError(f"redirect without Location header: {current}")
        current = urljoin(current, location)
    raise SSRFError(f"exceeded maximum redirects ({max_redirects}): {url}")


def iter_content_capped(response: Response, chunk_size: int, max_bytes: "int | None") -> Iterator[bytes]:
    """Read the body in chunks; raise an error above the limit."""
    received = 0
    for chunk in response.iter_content(chunk_size):
        received += len(chunk)
        if max_bytes is not None and received > max_bytes:
            response.close()
            raise SSRFError(f"download exceeds size cap: >{max_bytes} bytes")
        yield chunk


def requests_error(message: str, name: str = "ConnectionError") -> OSError:
    """Return an error of the class that scripts catch: from `requests` if it is installed."""
    try:
        from importlib import import_module

        requests: Any = import_module("requests")
    except ImportError:
        return OSError(message)
    error: OSError = getattr(requests, name)(message)
    return error


def _request(url: str, timeout: float, headers: "dict[str, str]") -> Response:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise SSRFError(f"blocked URL scheme {parts.scheme!r}: {url}")
    if not parts.hostname:
        raise SSRFError(f"URL has no host: {url}")
    _refuse_if_proxied(url, parts)
    connection = _connect(parts, parts.hostname, timeout)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET", path, headers=headers)
        return Response(url, connection, connection.getresponse())
    except (http.client.HTTPException, OSError) as error:
        connection.close()
        raise requests_error(f"failed to fetch {url}: {error!r}") from error


def _refuse_if_proxied(url: str, parts: SplitResult) -> None:
    """Raise an error if a proxy is set: the proxy resolves the host, so its address cannot be checked."""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not _private_allowed() and not proxy_bypass(parts.hostname or ""):
        raise SSRFError(
            f"refusing to fetch {url} through proxy {proxy}: IP pinning cannot be "
            f"enforced via a proxy; set {_ALLOW_PRIVATE}=true to allow it"
        )


def _private_allowed() -> bool:
    return os.environ.get(_ALLOW_PRIVATE, "").strip().lower() in ("1", "true", "yes")


def _connect(parts: SplitResult, host: str, timeout: float) -> http.client.HTTPConnection:
    """Connect to a validated address: the host name is not resolved again."""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    if secure:
        # The `Host` header has no port if it is the default port.
        connection.default_port = 443  # type: ignore[misc]
    last = OSError(f"`{host}` has no address")
    for address in resolve_and_validate(host, port):
        try:
            plain = socket.create_connection((address, port), timeout)
            context = ssl.create_default_context() if secure else None
            connection.sock = context.wrap_socket(plain, server_hostname=host) if context else plain
            return connection
        except OSError as error:
            last = error
    raise requests_error(f"failed to connect to {host}:{port}: {last}") from last

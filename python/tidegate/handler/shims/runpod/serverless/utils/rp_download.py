"""Brings files from the net into the working folder."""

import os
import time
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlparse

from .rp_ssrf import SSRFError, chunks_of, safe_get

HEADERS = {"User-Agent": "runpod-python/0.0.0 (https://runpod.io; support@runpod.io)"}
_TRIES = 3


def download_files_from_urls(job_id: str, urls: "str | list[str]") -> "list[str | None]":
    """Fetch files side by side; `None` stands for those that cannot be had."""
    folder = os.path.abspath(os.path.join("jobs", job_id, "downloaded_files"))
    os.makedirs(folder, exist_ok=True)

    def fetch(url: "str | None") -> "str | None":
        if url is None:
            return None
        for attempt in range(1, _TRIES + 1):
            try:
                return _fetched(url, os.path.join(folder, str(uuid.uuid4())))
            except OSError as error:
                if attempt == _TRIES:
                    print(f"Failed to download {url}: {error}")
                else:
                    time.sleep(2 ** (attempt - 1) / 2)
        return None

    with ThreadPoolExecutor() as pool:
        return list(pool.map(fetch, [urls] if isinstance(urls, str) else urls))


def file(file_url: str) -> dict[str, Any]:
    """Fetch one file into `job_files`; a zip is unpacked beside it."""
    os.makedirs("job_files", exist_ok=True)
    name = os.path.join("job_files", str(uuid.uuid4()))
    with safe_get(file_url, timeout=30, headers=HEADERS) as response:
        original = _name_in(response) or os.path.basename(urlparse(file_url).path)
        kind = os.path.splitext(original)[1].replace(".", "")
        path = f"{name}.{kind}"
        _write(response, path)
    unpacked = None
    if kind == "zip":
        unpacked = os.path.abspath(name)
        with zipfile.ZipFile(path) as archive:
            archive.extractall(unpacked)  # `zipfile` keeps what it writes inside of the folder
    return {
        "file_path": os.path.abspath(path),
        "type": kind,
        "original_name": original,
        "extracted_path": unpacked,
    }


def _fetched(url: str, stem: str) -> str:
    with safe_get(url, timeout=5, headers=HEADERS) as response:
        ending = os.path.splitext(_name_in(response))[1] or os.path.splitext(urlparse(url).path)[1]
        _write(response, stem + ending)
    return stem + ending


def _name_in(response: HTTPResponse) -> str:
    """Return the file's name, if the server says it."""
    header = Message()
    header["Content-Disposition"] = response.getheader("Content-Disposition") or ""
    return header.get_filename() or ""


def _write(response: HTTPResponse, path: str) -> None:
    with open(path, "wb") as target:
        for piece in chunks_of(response):
            target.write(piece)


__all__ = ["SSRFError", "download_files_from_urls", "file"]

"""Downloads files into the working directory."""

import os
import time
import uuid
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlparse

from .rp_ssrf import Response, iter_content_capped, max_download_bytes, safe_get

HEADERS = {"User-Agent": "runpod-python/0.0.0 (https://runpod.io; support@runpod.io)"}
_TRIES = 3
_MB = 1024 * 1024


def calculate_chunk_size(file_size: int) -> int:
    """Return the chunk size for reading a file of this size."""
    if file_size <= _MB:
        return 1024
    return _MB if file_size <= 1024 * _MB else 10 * _MB


def parse_content_length(headers: "Mapping[str, str]") -> int:
    """Return the declared length of a body; 0 if it is not declared."""
    try:
        return int(headers.get("Content-Length", 0))
    except (TypeError, ValueError):
        return 0


def extract_disposition_params(content_disposition: str) -> dict[str, str]:
    """Return the parameters of a `Content-Disposition` header, such as `filename`."""
    pairs = (part.split("=", 1) for part in content_disposition.split(";") if "=" in part)
    return {name.strip().lower(): value.strip().strip('"') for name, value in pairs}


def download_files_from_urls(job_id: str, urls: "str | list[str]") -> "list[str | None]":
    """Download files in parallel; `None` stands for those that failed."""
    folder = os.path.abspath(os.path.join("jobs", job_id, "downloaded_files"))
    os.makedirs(folder, exist_ok=True)

    def download(url: "str | None") -> "str | None":
        if url is None:
            return None
        for attempt in range(1, _TRIES + 1):
            try:
                return _download(url, os.path.join(folder, str(uuid.uuid4())))
            except OSError as error:
                if attempt == _TRIES:
                    print(f"Failed to download {url}: {error}")
                else:
                    time.sleep(2 ** (attempt - 1) / 2)
        return None

    with ThreadPoolExecutor() as pool:
        return list(pool.map(download, [urls] if isinstance(urls, str) else urls))


def file(file_url: str) -> dict[str, Any]:
    """Download one file into `job_files`; a zip file is extracted beside it."""
    os.makedirs("job_files", exist_ok=True)
    name = os.path.join("job_files", str(uuid.uuid4()))
    with safe_get(file_url, timeout=30, headers=HEADERS) as response:
        response.raise_for_status()
        original = _sent_file_name(response) or os.path.basename(urlparse(file_url).path)
        kind = os.path.splitext(original)[1].replace(".", "")
        path = f"{name}.{kind}"
        _write(response, path)
    extracted = None
    if kind == "zip":
        extracted = os.path.abspath(name)
        with zipfile.ZipFile(path) as archive:
            archive.extractall(extracted)  # `zipfile` writes only inside the folder
    return {
        "file_path": os.path.abspath(path),
        "type": kind,
        "original_name": original,
        "extracted_path": extracted,
    }


def _download(url: str, stem: str) -> str:
    with safe_get(url, timeout=5, headers=HEADERS) as response:
        response.raise_for_status()
        extension = os.path.splitext(_sent_file_name(response))[1] or os.path.splitext(urlparse(url).path)[1]
        _write(response, stem + extension)
    return stem + extension


def _sent_file_name(response: Response) -> str:
    """Return the file name that the server sent, if any."""
    return extract_disposition_params(response.headers.get("Content-Disposition", "")).get("filename", "")


def _write(response: Response, path: str) -> None:
    chunk_size = calculate_chunk_size(parse_content_length(response.headers))
    with open(path, "wb") as target:
        for chunk in iter_content_capped(response, chunk_size, max_download_bytes()):
            target.write(chunk)

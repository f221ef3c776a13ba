"""Persists folders between workers: mirrors them to a volume, where the next worker finds them.

The mirror is `VOLUME/.cache/NAMESPACE`, in the layout of Runpod's own package; each can read the other's
mirror. Small files are in one `small.tar`, large ones in `big/` under their own paths, and `manifest.json` is
written last.
"""

import atexit
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from runpod.serverless.modules.rp_logger import RunPodLogger

log = RunPodLogger()

_VERSION = 1
_SMALL_BELOW = 256 * 1024
# Tolerance for the clock of a network volume.
_TOLERANCE_S = 2.0
_EXIT_WAIT_S = 30.0
_TEMPORARY_SUFFIX = ".rpvc.tmp"

_Meta = dict[str, Any]
_pending: list[threading.Thread] = []


class VolumeCache:
    """Restores folders from a volume, and saves them saved: `with VolumeCache("/root/.cache"): …`."""

    def __init__(
        self,
        dirs: "str | bytes | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]",
        *,
        namespace: "str | None" = None,
        volume_path: "str | bytes | os.PathLike[str]" = "/runpod-volume",
        best_effort: bool = True,
        max_workers: "int | None" = None,
    ) -> None:
        """Set the folders and their namespace, by default the endpoint's id."""
        several = [dirs] if isinstance(dirs, str | bytes | os.PathLike) else dirs
        self._dirs = [os.path.realpath(os.fsdecode(folder)) for folder in several]
        self._namespace = namespace or os.environ.get("RUNPOD_ENDPOINT_ID") or ""
        if self._namespace in (".", "..") or any(mark in self._namespace for mark in "/\\"):
            raise ValueError(f"namespace must be a single safe path component, got {self._namespace!r}")
        self._volume = os.fsdecode(volume_path)
        self._best_effort = best_effort
        if max_workers is not None and max_workers < 1:
            raise ValueError(f"max_workers must be a positive integer, got {max_workers!r}")
        self._max_workers = max_workers or min(32, (os.cpu_count() or 4) * 4)

    @property
    def available(self) -> bool:
        """Return whether saved is a volume and a namespace."""
        return bool(self._namespace) and os.path.isdir(self._volume)

    def hydrate(self) -> int:
        """Restore files that are missing here or newer on the volume; return their number."""
        return self._run_logged(self._hydrate) if self.available else 0

    def sync(self, *, background: bool = True) -> None:
        """Save files that are missing on the volume or newer here."""
        if not self.available:
            return
        if not background:
            self._run_logged(self._sync)
            return
        thread = threading.Thread(target=self._run_logged, args=(self._sync,), daemon=True)
        _pending[:] = [other for other in _pending if other.is_alive()] + [thread]
        thread.start()

    def __enter__(self) -> "VolumeCache":
        """Restore the folders."""
        self.hydrate()
        return self

    def __exit__(self, *_details: object) -> None:
        """Save the folders to the volume in the background."""
        self.sync(background=True)

    def _run_logged(self, work: "Callable[[], int]") -> int:
        """Run `work`; a failed cache only makes the start slower, so errors are logged."""
        try:
            return work()
        except Exception as error:
            if not self._best_effort:
                raise
            log.warn(f"VolumeCache operation failed: {error}")
            return 0

    def _mirror_path(self, *parts: str) -> str:
        return os.path.join(self._volume, ".cache", self._namespace, *parts)

    def _big_path(self, path: str) -> str:
        return self._mirror_path("big", os.path.relpath(path, "/"))

    # -- from the volume

    def _hydrate(self) -> int:
        manifest = self._manifest()
        if manifest is None:
            return 0
        count = self._extract() if manifest.get("small") else 0
        pairs = []
        for path in (os.path.normpath(os.path.join("/", entry["path"])) for entry in manifest.get("big", [])):
            # The manifest is untrusted: nothing is read or written outside of the cached folders.
            if self._is_cached_path(path) and _is_within(self._mirror_path("big"), self._big_path(path)):
                pairs.append((self._big_path(path), path))
        count += len(self._copy(pairs)[0])
        if count:
            log.info(f"VolumeCache: hydrated {count} file(s) from {self._mirror_path()}")
        return count

    def _extract(self) -> int:
        count = 0
        try:
            with tarfile.open(self._mirror_path("small.tar")) as archive:
                for member in archive.getmembers():
                    path = os.path.join("/", member.name)
                    meta = {"path": path, "size": member.size, "mtime": member.mtime}
                    if member.isfile() and self._is_cached_path(path) and not _is_up_to_date(meta):
                        count += self._extract_one(archive, member, path)
        except (OSError, tarfile.TarError) as error:
            log.debug(f"VolumeCache: corrupt archive {self._mirror_path('small.tar')}: {error}")
        if count:
            log.info(f"VolumeCache: extracted {count} small file(s)")
        return count

    def _extract_one(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> int:
        source = archive.extractfile(member)
        if source is None:
            return 0
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with source, _replacing(path) as target:
                shutil.copyfileobj(source, target.file)
            os.chmod(path, member.mode & 0o777)
            os.utime(path, (member.mtime, member.mtime))
        except OSError as error:
            log.debug(f"VolumeCache: skip extract {member.name}: {error}")
            return 0
        return 1

    def _is_cached_path(self, path: str) -> bool:
        return any(_is_within(folder, path) for folder in self._dirs)

    def _manifest(self) -> "_Meta | None":
        try:
            with open(self._mirror_path("manifest.json")) as file:
                manifest = json.load(file)
        except (OSError, ValueError):
            return None
        known = isinstance(manifest, dict) and manifest.get("version") == _VERSION
        return manifest if known else None

    # -- to the volume

    def _sync(self) -> int:
        known = self._manifest() or {}
        metas = [meta for folder in self._dirs for path in _files(folder) if (meta := _meta(path))]
        small = [meta for meta in metas if meta["size"] < _SMALL_BELOW]
        big = [meta for meta in metas if meta["size"] >= _SMALL_BELOW]
        before = {entry["path"]: entry for entry in known.get("small", [])}
        changed = [meta for meta in small if _is_newer(meta, before.get(meta["path"]))]
        # An archive with a deleted file would restore it.
        if changed or before.keys() - {meta["path"] for meta in small}:
            self._pack(small)
        copied, current = self._copy([(meta["path"], self._big_path(meta["path"])) for meta in big])
        # Files that failed to copy are not in the manifest, so they are not restored partially.
        saved = [meta for meta in big if meta["path"] in copied | current]
        manifest = {"version": _VERSION, "threshold": _SMALL_BELOW, "small": small, "big": saved}
        os.makedirs(self._mirror_path(), exist_ok=True)
        with _replacing(self._mirror_path("manifest.json")) as target:
            target.file.write(json.dumps(manifest).encode())
        count = len(copied) + len(changed)
        if count:
            log.info(f"VolumeCache: synced {count} file(s) to {self._mirror_path()}")
        return count

    def _pack(self, small: "list[_Meta]") -> None:
        if not small:
            with suppress(FileNotFoundError):
                os.remove(self._mirror_path("small.tar"))
            return
        os.makedirs(self._mirror_path(), exist_ok=True)
        with (
            _replacing(self._mirror_path("small.tar")) as target,
            tarfile.open(fileobj=target.file, mode="w") as archive,
        ):
            for meta in small:
                with suppress(FileNotFoundError):
                    archive.add(meta["path"], os.path.relpath(meta["path"], "/"), recursive=False)

    def _copy(self, pairs: "list[tuple[str, str]]") -> "tuple[set[str], set[str]]":
        """Copy in parallel; return the sources that were copied, and those that were up to date."""
        outdated = [(source, to) for source, to in pairs if _is_newer(_meta(source), _meta(to))]
        current = {source for source, _ in pairs} - {source for source, _ in outdated}
        with ThreadPoolExecutor(self._max_workers) as pool:
            done = list(pool.map(lambda pair: _copy_one(*pair), outdated))
        return {source for (source, _), copied in zip(outdated, done, strict=True) if copied}, current


class _replacing:  # used like a function
    """Writes a temporary file, and renames it to the path when it is complete."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = f"{path}.{os.getpid()}.{threading.get_ident()}{_TEMPORARY_SUFFIX}"

    def __enter__(self) -> "_replacing":
        self.file = open(self._temporary, "wb")  # closed below
        return self

    def __exit__(self, kind: object, *_details: object) -> None:
        self.file.close()
        if kind is None:
            os.replace(self._temporary, self._path)
        else:
            os.remove(self._temporary)


def _files(folder: str) -> "Iterator[str]":
    for folder_path, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(folder_path, name)
            is_transient = (
                name.endswith((".lock", _TEMPORARY_SUFFIX)) or "/refs/" in path or "/.no_exist/" in path
            )
            if not is_transient and not os.path.islink(path):
                yield path


def _meta(path: str) -> "_Meta | None":
    try:
        found = os.stat(path)
    except OSError:
        return None
    return {"path": path, "size": found.st_size, "mtime": found.st_mtime}


def _is_newer(meta: "_Meta | None", than: "_Meta | None") -> bool:
    if meta is None or than is None:
        return meta is not None
    return bool(meta["size"] != than["size"] or meta["mtime"] > than["mtime"] + _TOLERANCE_S)


def _is_up_to_date(meta: _Meta) -> bool:
    """Return whether the file exists here and is not older."""
    here = _meta(meta["path"])
    return here is not None and here["size"] == meta["size"] and here["mtime"] >= meta["mtime"] - _TOLERANCE_S


def _is_within(folder: str, path: str) -> bool:
    real = os.path.realpath(path)
    return real == os.path.realpath(folder) or real.startswith(os.path.realpath(folder) + os.sep)


def _copy_one(source: str, to: str) -> bool:
    try:
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with _replacing(to) as target, open(source, "rb") as file:
            shutil.copyfileobj(file, target.file)
        shutil.copystat(source, to)
    except OSError as error:
        log.debug(f"VolumeCache: skip {source} -> {to}: {error}")
        return False
    return True


def _wait_for_syncs() -> None:
    for thread in list(_pending):
        thread.join(_EXIT_WAIT_S)
        if thread.is_alive():
            log.warn("VolumeCache: background sync did not finish at exit; cache may be incomplete")
    _pending.clear()


atexit.register(_wait_for_syncs)

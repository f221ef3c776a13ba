"""Folders that outlive a worker: a mirror of them on a volume that the next one finds.

The mirror is `VOLUME/.cache/NAMESPACE`, in the layout of Runpod's own package, which can read it and is read:
small files in one `small.tar`, large ones in `big/` under their own paths, and `manifest.json`, written last.
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
_SMALL = 256 * 1024
# What a network volume's clock may be off.
_TOLERANCE_S = 2.0
_LAST_WAIT_S = 30.0
_UNFINISHED = ".rpvc.tmp"

_Meta = dict[str, Any]
_pending: list[threading.Thread] = []


class VolumeCache:
    """Brings folders back from a volume, and takes them there: `with VolumeCache("/root/.cache"): …`."""

    def __init__(
        self,
        dirs: "str | bytes | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]",
        *,
        namespace: "str | None" = None,
        volume_path: "str | bytes | os.PathLike[str]" = "/runpod-volume",
        best_effort: bool = True,
        max_workers: "int | None" = None,
    ) -> None:
        """Name the folders, and whose they are: by default those of the endpoint."""
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
        """Tell whether there is a volume, and a name to use on it."""
        return bool(self._namespace) and os.path.isdir(self._volume)

    def hydrate(self) -> int:
        """Bring back what is missing here or newer there; return how many files."""
        return self._tried(self._hydrate) if self.available else 0

    def sync(self, *, background: bool = True) -> None:
        """Take to the volume what is missing there or newer here."""
        if not self.available:
            return
        if not background:
            self._tried(self._sync)
            return
        thread = threading.Thread(target=self._tried, args=(self._sync,), daemon=True)
        _pending[:] = [other for other in _pending if other.is_alive()] + [thread]
        thread.start()

    def __enter__(self) -> "VolumeCache":
        """Bring them back."""
        self.hydrate()
        return self

    def __exit__(self, *_details: object) -> None:
        """Take them to the volume, without waiting for it."""
        self.sync(background=True)

    def _tried(self, work: "Callable[[], int]") -> int:
        """Do it: a cache that fails is a slow start, and no more."""
        try:
            return work()
        except Exception as error:
            if not self._best_effort:
                raise
            log.warn(f"VolumeCache operation failed: {error}")
            return 0

    def _at(self, *parts: str) -> str:
        return os.path.join(self._volume, ".cache", self._namespace, *parts)

    def _big(self, path: str) -> str:
        return self._at("big", os.path.relpath(path, "/"))

    # -- from the volume

    def _hydrate(self) -> int:
        manifest = self._manifest()
        if manifest is None:
            return 0
        count = self._unpack() if manifest.get("small") else 0
        pairs = []
        for path in (os.path.normpath(os.path.join("/", entry["path"])) for entry in manifest.get("big", [])):
            # The manifest may be anybody's: nothing is read or written outside of where it belongs.
            if self._is_ours(path) and _is_within(self._at("big"), self._big(path)):
                pairs.append((self._big(path), path))
        count += len(self._copy(pairs)[0])
        if count:
            log.info(f"VolumeCache: hydrated {count} file(s) from {self._at()}")
        return count

    def _unpack(self) -> int:
        count = 0
        try:
            with tarfile.open(self._at("small.tar")) as archive:
                for member in archive.getmembers():
                    path = os.path.join("/", member.name)
                    meta = {"path": path, "size": member.size, "mtime": member.mtime}
                    if member.isfile() and self._is_ours(path) and not _is_here(meta):
                        count += self._unpack_one(archive, member, path)
        except (OSError, tarfile.TarError) as error:
            log.debug(f"VolumeCache: corrupt archive {self._at('small.tar')}: {error}")
        if count:
            log.info(f"VolumeCache: extracted {count} small file(s)")
        return count

    def _unpack_one(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> int:
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

    def _is_ours(self, path: str) -> bool:
        return any(_is_within(folder, path) for folder in self._dirs)

    def _manifest(self) -> "_Meta | None":
        try:
            with open(self._at("manifest.json")) as file:
                manifest = json.load(file)
        except (OSError, ValueError):
            return None
        known = isinstance(manifest, dict) and manifest.get("version") == _VERSION
        return manifest if known else None

    # -- to the volume

    def _sync(self) -> int:
        known = self._manifest() or {}
        metas = [meta for folder in self._dirs for path in _files(folder) if (meta := _meta(path))]
        small = [meta for meta in metas if meta["size"] < _SMALL]
        big = [meta for meta in metas if meta["size"] >= _SMALL]
        before = {entry["path"]: entry for entry in known.get("small", [])}
        changed = [meta for meta in small if _is_newer(meta, before.get(meta["path"]))]
        # An archive with a file in it that is gone would bring it back.
        if changed or before.keys() - {meta["path"] for meta in small}:
            self._pack(small)
        copied, current = self._copy([(meta["path"], self._big(meta["path"])) for meta in big])
        # What could not be copied is not in the manifest: nobody gets half of it.
        there = [meta for meta in big if meta["path"] in copied | current]
        manifest = {"version": _VERSION, "threshold": _SMALL, "small": small, "big": there}
        os.makedirs(self._at(), exist_ok=True)
        with _replacing(self._at("manifest.json")) as target:
            target.file.write(json.dumps(manifest).encode())
        count = len(copied) + len(changed)
        if count:
            log.info(f"VolumeCache: synced {count} file(s) to {self._at()}")
        return count

    def _pack(self, small: "list[_Meta]") -> None:
        if not small:
            with suppress(FileNotFoundError):
                os.remove(self._at("small.tar"))
            return
        os.makedirs(self._at(), exist_ok=True)
        with (
            _replacing(self._at("small.tar")) as target,
            tarfile.open(fileobj=target.file, mode="w") as archive,
        ):
            for meta in small:
                with suppress(FileNotFoundError):
                    archive.add(meta["path"], os.path.relpath(meta["path"], "/"), recursive=False)

    def _copy(self, pairs: "list[tuple[str, str]]") -> "tuple[set[str], set[str]]":
        """Copy side by side; return the sources that were copied, and those that were there already."""
        todo = [(source, to) for source, to in pairs if _is_newer(_meta(source), _meta(to))]
        current = {source for source, _ in pairs} - {source for source, _ in todo}
        with ThreadPoolExecutor(self._max_workers) as pool:
            done = list(pool.map(lambda pair: _copy_one(*pair), todo))
        return {source for (source, _), copied in zip(todo, done, strict=True) if copied}, current


class _replacing:  # used like a function
    """Writes a file beside another one, and puts it in its place when it is whole."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._beside = f"{path}.{os.getpid()}.{threading.get_ident()}{_UNFINISHED}"

    def __enter__(self) -> "_replacing":
        self.file = open(self._beside, "wb")  # closed below
        return self

    def __exit__(self, kind: object, *_details: object) -> None:
        self.file.close()
        if kind is None:
            os.replace(self._beside, self._path)
        else:
            os.remove(self._beside)


def _files(folder: str) -> "Iterator[str]":
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            passing = name.endswith((".lock", _UNFINISHED)) or "/refs/" in path or "/.no_exist/" in path
            if not passing and not os.path.islink(path):
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


def _is_here(meta: _Meta) -> bool:
    """Tell whether the file is here, and not an older one."""
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
        thread.join(_LAST_WAIT_S)
        if thread.is_alive():
            log.warn("VolumeCache: background sync did not finish at exit; cache may be incomplete")
    _pending.clear()


atexit.register(_wait_for_syncs)

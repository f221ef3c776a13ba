"""Calls every tool of `runpod` that scripts import, and writes down what it does.

Run with the real package and with the stand-in: `python tools_probe.py ADDRESS`. What differs from run to run
(names that are made up, times) is left out or replaced.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import sys
import threading
from typing import Any

import runpod
from runpod.serverless.modules import rp_fitness
from runpod.serverless.modules.rp_logger import RunPodLogger
from runpod.serverless.utils import (
    rp_cleanup,
    rp_cuda,
    rp_debugger,
    rp_download,
    rp_model_cache,
    rp_ssrf,
    rp_upload,
    rp_validator,
    rp_volume_cache,
)

ADDRESS = sys.argv[1]
PRIVATE = "RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS"
MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=/)[0-9a-f]{8}(?=\.)")


def plain(value: Any) -> Any:
    """Say it in JSON, without what is made up."""
    if isinstance(value, str):
        return MADE_UP.sub("NAME", value).replace(os.getcwd(), "HERE").replace(ADDRESS, "ADDRESS")
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, float)) else repr(value)


def tried(call: Any, *args: Any, **kwargs: Any) -> Any:
    """Say what comes back, or which error."""
    try:
        return plain(call(*args, **kwargs))
    except Exception as error:
        return [type(error).__name__, plain(str(error))]


@contextlib.contextmanager
def environment(**variables: str):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def printed(call: Any, *args: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        call(*args)
    return plain(out.getvalue())


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read().decode()


def signatures() -> Any:
    """The parameters of every public function, by name."""
    functions = [
        rp_cleanup.clean,
        rp_cuda.is_available,
        rp_download.download_files_from_urls,
        rp_download.file,
        rp_download.calculate_chunk_size,
        rp_download.parse_content_length,
        rp_download.extract_disposition_params,
        rp_debugger.get_debugger_output,
        rp_debugger.clear_debugger_output,
        rp_model_cache.resolve_model_cache_path_from_hugginface_repository,
        rp_ssrf.is_safe_address,
        rp_ssrf.resolve_and_validate,
        rp_ssrf.max_download_bytes,
        rp_ssrf.safe_get,
        rp_ssrf.iter_content_capped,
        rp_upload.get_boto_client,
        rp_upload.extract_region_from_url,
        rp_upload.upload_image,
        rp_upload.files,
        rp_upload.bucket_upload,
        rp_upload.upload_file_to_bucket,
        rp_upload.upload_in_memory_object,
        rp_validator.validate,
        rp_volume_cache.VolumeCache,
        rp_volume_cache.VolumeCache.hydrate,
        rp_volume_cache.VolumeCache.sync,
        runpod.serverless.start,
        runpod.serverless.progress_update,
        runpod.serverless.register_fitness_check,
        RunPodLogger.info,
        RunPodLogger.set_level,
    ]
    return {
        function.__qualname__: [
            (
                name,
                parameter.kind.name,
                plain(parameter.default if parameter.default is not parameter.empty else "none"),
            )
            for name, parameter in inspect.signature(function).parameters.items()
        ]
        for function in functions
    }


def names() -> Any:
    """What `from runpod.serverless… import` finds."""
    return [
        sorted(set(module.__all__)) for module in (runpod.serverless, sys.modules["runpod.serverless.utils"])
    ]


def validator() -> Any:
    rules = {
        "word": {"type": str, "required": True, "constraints": str.islower},
        "share": {"type": float, "required": False, "default": 0.5, "constraints": lambda share: share < 1},
        "count": {"type": int, "required": False},
        "flag": {"type": bool, "required": False, "default": None},
        "many": {"type": list, "required": False, "default": []},
    }
    inputs = [
        {},
        {"word": "tea"},
        {"word": "TEA", "count": 1},
        {"word": "tea", "share": 3, "count": 1},
        {"word": "tea", "share": "x", "count": 1},
        {"word": 1, "count": "1", "flag": "yes", "many": {}, "other": 1, "more": 2},
        {"word": "tea", "count": True, "flag": None},
        {"word": None, "share": None, "count": None},
    ]
    odd = [
        {"a": {"type": str}},
        {"a": {"required": False, "default": 1}},
        {"a": '{"type": "str", "required": true}'},
        {"a": "no rules"},
        {"a": {"type": str, "required": True, "constraints": lambda a: a is None}},
    ]
    told = [
        tried(rp_validator.validate, wanted, {key: dict(rule) for key, rule in rules.items()})
        for wanted in inputs
    ]
    for schema in odd:
        for wanted in ({}, {"a": "x"}):
            copy = dict(schema)
            told.append([tried(rp_validator.validate, wanted, copy), type(copy["a"]).__name__])
    return told


def file() -> Any:
    with environment(**{PRIVATE: "1"}):
        good = [
            rp_download.file(f"{ADDRESS}/{path}")
            for path in ("a/words.txt?x=1", "named", "odd", "box.zip", "leads")
        ]
        content = [
            read(one["file_path"]) if one["type"] != "zip" else os.listdir(one["extracted_path"])
            for one in good
        ]
        bad = [tried(rp_download.file, f"{ADDRESS}/{path}")[0] for path in ("gone", "broken")]
        rounds = [tried(rp_download.file, f"{ADDRESS}/{path}") for path in ("round", "nowhere")]
    return [plain(good), content, bad, rounds]


def many() -> Any:
    with environment(**{PRIVATE: "yes"}):
        urls = [f"{ADDRESS}/a/words.txt", None, f"{ADDRESS}/named", f"{ADDRESS}/gone"]
        paths = rp_download.download_files_from_urls("job", urls)
        one = rp_download.download_files_from_urls("job", f"{ADDRESS}/a/words.txt")
    return [plain(paths), plain(one), [read(path) for path in paths if path]]


def guarded() -> Any:
    addresses = [
        "8.8.8.8", "1.1.1.1", "127.0.0.1", "10.0.0.1", "172.16.1.1", "192.168.0.1", "169.254.169.254",
        "100.64.0.1", "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "::1", "::",
        "fe80::1", "fc00::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "2606:4700::1111", "ff02::1",
        "no address", "",
    ]  # fmt: skip
    with environment(http_proxy="http://127.0.0.1:9"):
        proxied = tried(rp_ssrf.safe_get, "http://8.8.8.8/")
    with environment(http_proxy="http://127.0.0.1:9", no_proxy="127.0.0.1"):
        beside = tried(rp_ssrf.safe_get, f"{ADDRESS}/named")
    return [
        {address: rp_ssrf.is_safe_address(address) for address in addresses},
        tried(rp_ssrf.resolve_and_validate, "127.0.0.1", 80),
        tried(rp_ssrf.resolve_and_validate, "no.such.host.invalid", 80)[0],
        [
            tried(rp_ssrf.safe_get, url)
            for url in ("ftp://x/y", "file:///etc/passwd", "http:///x", f"{ADDRESS}/named")
        ],
        tried(rp_download.download_files_from_urls, "job", [f"{ADDRESS}/named"]),
        proxied,
        beside,
        issubclass(rp_ssrf.SSRFError, ValueError),
    ]


def limits() -> Any:
    told: list[Any] = []
    for text in ("7", "0", "-1", "many"):
        with environment(RUNPOD_MAX_DOWNLOAD_BYTES=text):
            told.append(rp_ssrf.max_download_bytes())
    with environment(RUNPOD_MAX_DOWNLOAD_BYTES="2", **{PRIVATE: "true"}):
        told += [tried(rp_download.file, f"{ADDRESS}/{path}") for path in ("named", "endless")]
    with environment(**{PRIVATE: "1"}), rp_ssrf.safe_get(f"{ADDRESS}/named") as response:
        told += [
            response.status_code,
            response.headers.get("x-word"),
            b"".join(response.iter_content(2)).decode(),
        ]
    told += [rp_download.calculate_chunk_size(size) for size in (0, 1024**2, 1024**2 + 1, 1024**3 + 1)]
    told += [rp_download.parse_content_length({"Content-Length": text}) for text in ("5", "x")]
    return told


def kept_here() -> Any:
    for name in ("picture.png", "other.png"):
        with open(name, "wb") as target:
            target.write(b"picture")
    results: list[Any] = [None, None]
    places = [
        rp_upload.upload_image("job", "picture.png", 1, results),
        *rp_upload.files("job", ["picture.png", "other.png"]),
        rp_upload.upload_file_to_bucket("x.png", "picture.png", prefix="p"),
        rp_upload.upload_in_memory_object("y.bin", b"bytes"),
    ]
    return [plain(places), plain(results), [read(place) for place in places]]


def bucket() -> Any:
    creds = {"endpointUrl": ADDRESS, "accessId": "id", "accessSecret": "secret"}
    variables = ("BUCKET_ENDPOINT_URL", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY")
    named = dict(zip(variables, creds.values(), strict=True))
    with environment(**named):
        places = [
            rp_upload.upload_image("job", "picture.png", bucket_name="b"),
            rp_upload.upload_file_to_bucket(
                "x.png", "picture.png", bucket_name="b", prefix="p", extra_args={"ContentType": "image/png"}
            ),
        ]
    places += [
        rp_upload.upload_in_memory_object("y.bin", b"bytes", creds, "b"),
        *rp_upload.bucket_upload("job", ["picture.png"], {**creds, "bucketName": "b"}),
    ]
    regions = ["https://x.s3.eu-west-1.amazonaws.com", "https://x.fra1.digitaloceanspaces.com", "https://x.y"]
    return [
        [plain(re.sub(r"(X-Amz-(Date|Signature|Credential))=[^&]*", r"\1", place)) for place in places],
        [rp_upload.extract_region_from_url(region) for region in regions],
        tried(rp_upload.get_boto_client, {"endpointUrl": ADDRESS}),
    ]


def cleanup() -> Any:
    gone = ["input_objects", "output_objects", "job_files", "mine"]
    for name in [*gone, "jobs", "other"]:
        os.makedirs(name, exist_ok=True)
    open("output.zip", "w").close()
    rp_cleanup.clean(["mine"])
    rp_cleanup.clean()
    return [os.path.exists(name) for name in [*gone, "output.zip", "jobs", "other"]]


def debugger() -> Any:
    points = rp_debugger.Checkpoints()
    told = [
        rp_debugger.Checkpoints() is points,
        tried(points.start, "none"),
        tried(points.stop, "none"),
        tried(points.add, "a"),
        tried(points.add, "a"),
        tried(points.stop, "a"),
    ]
    points.add("open")
    points.start("open")

    @rp_debugger.FunctionTimer
    def doubled(number: int, *, more: int = 0) -> int:
        """Say it twice."""
        with rp_debugger.LineTimer("inside"):
            return number * 2 + more

    @rp_debugger.FunctionTimer
    def fails() -> None:
        raise ValueError("no")

    told += [doubled(2, more=1), tried(fails), tried(doubled, 1)]
    output = rp_debugger.get_debugger_output()
    told.append([(point["name"], sorted(point)) for point in output["timestamps"]])
    told.append([sorted(output), sorted(output["system_info"]), output["system_info"]["os"]])
    told.append(
        [output["system_info"]["python_version"], output["system_info"]["processor"], len(points.checkpoints)]
    )
    points.add("a")
    rp_debugger.clear_debugger_output()
    return [*told, points.checkpoints, points.name_lookup]


def cuda() -> Any:
    folder = os.path.abspath("bin")
    os.makedirs(folder, exist_ok=True)
    told = [rp_cuda.is_available()]
    for words in ("echo NVIDIA-SMI 1", "echo something else", "echo NVIDIA-SMI; exit 9"):
        with open(f"{folder}/nvidia-smi", "w") as program:
            program.write(f"#!/bin/sh\n{words}\n")
        os.chmod(f"{folder}/nvidia-smi", 0o755)
        with environment(PATH=f"{folder}:{os.environ['PATH']}"):
            told.append(rp_cuda.is_available())
    return told


def model_cache() -> Any:
    resolve = rp_model_cache.resolve_model_cache_path_from_hugginface_repository
    names = ("org/model", "org/model:rev", "model", "a:b:c", ":rev", "", "model:")
    with contextlib.redirect_stdout(io.StringIO()):
        return [tried(resolve, name) for name in names] + [
            resolve("a/b:c", path_template="{revision}-{model}")
        ]


def lines() -> Any:
    log = RunPodLogger()
    told = [RunPodLogger() is log, log.level]
    for say in (log.debug, log.info, log.warn, log.error, log.trace):
        told += [printed(say, "word", "job"), printed(say, {"a": 1})]
    told += [
        printed(log.secret, "key", "secret"),
        printed(log.info, "x" * 5000),
        printed(log.set_level, "warn"),
    ]
    told += [
        printed(log.info, "no"),
        printed(log.error, "yes"),
        tried(log.set_level, "loud"),
        tried(log.set_level, 9),
    ]
    printed(log.set_level, 2)
    told.append(log.level)
    with environment(RUNPOD_ENDPOINT_ID="ep"):
        told += [printed(log.info, 'a "word"', "job"), printed(log.warn, "ü")]
    return told


def fitness() -> Any:
    def first() -> None:
        pass

    told = [printed(rp_fitness.register_fitness_check, first), rp_fitness._fitness_checks == [first]]
    rp_fitness.clear_fitness_checks()
    return [*told, rp_fitness._fitness_checks]


def volume() -> Any:
    cached, mounted = os.path.abspath("cached"), os.path.abspath("volume")
    os.makedirs(f"{cached}/refs", exist_ok=True)
    os.makedirs(mounted, exist_ok=True)
    files = {
        "small": b"s" * 10,
        "deep/er/big": b"b" * 300_000,
        "x.lock": b"",
        "refs/main": b"",
        "edge": b"e" * 256 * 1024,
    }
    for name, data in files.items():
        os.makedirs(os.path.dirname(f"{cached}/{name}"), exist_ok=True)
        with open(f"{cached}/{name}", "wb") as target:
            target.write(data)
    os.symlink(f"{cached}/small", f"{cached}/link")
    make = lambda **more: rp_volume_cache.VolumeCache(cached, namespace="ns", volume_path=mounted, **more)  # noqa: E731
    cache = make()
    told = [
        cache.available,
        rp_volume_cache.VolumeCache(cached, volume_path=mounted).available,
        cache.hydrate(),
    ]
    told += [printed(lambda: cache.sync(background=False)), printed(lambda: cache.sync(background=False))]
    with open(f"{mounted}/.cache/ns/manifest.json") as file:
        manifest = json.load(file)
    told.append(
        {
            key: sorted(e["path"] for e in part) if isinstance(part, list) else part
            for key, part in manifest.items()
        }
    )
    told.append(
        sorted(
            os.path.relpath(os.path.join(place, name), mounted)
            for place, _, found in os.walk(mounted)
            for name in found
        )
    )
    for name in ("small", "deep/er/big"):
        os.remove(f"{cached}/{name}")
    told += [printed(cache.hydrate), sorted(os.listdir(cached)), cache.hydrate()]
    os.remove(f"{cached}/small")
    before = set(threading.enumerate())
    with make() as same:
        told += [same.available, os.path.exists(f"{cached}/small")]
    for syncing in set(threading.enumerate()) - before:
        syncing.join()
    told += [tried(make, max_workers=0), tried(rp_volume_cache.VolumeCache, cached, namespace="a/b")]
    for bad in ("{}", "no json", '{"version": 9}'):
        with open(f"{mounted}/.cache/ns/manifest.json", "w") as file:
            file.write(bad)
        told.append(cache.hydrate())
    return plain(told)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        probes = (
            signatures, names, validator, file, many, guarded, limits, kept_here, bucket, cleanup, debugger,
            cuda, model_cache, lines, fitness, volume,
        )  # fmt: skip
        said = {probe.__name__: probe() for probe in probes}
    print(json.dumps(said))

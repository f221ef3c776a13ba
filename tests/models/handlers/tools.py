import runpod
from runpod import RunPodLogger
from runpod.serverless.utils import download_files_from_urls, rp_cleanup, rp_download, rp_upload
from runpod.serverless.utils.rp_debugger import Checkpoints, FunctionTimer, LineTimer
from runpod.serverless.utils.rp_model_cache import resolve_model_cache_path_from_hugginface_repository
from runpod.serverless.utils.rp_validator import validate

RULES = {
    "word": {"type": str, "required": True, "constraints": lambda word: word.islower()},
    "share": {"type": float, "required": False, "default": 0.5},
    "count": {"type": int, "required": False},
}
log = RunPodLogger()


@FunctionTimer
def timed():
    return 1


def refused(url):
    try:
        rp_download.file(url)
    except ValueError as error:
        return type(error).__name__


def handler(job):
    wanted = job["input"]
    log.info("hello", job["id"])
    log.debug("x" * 5000)
    with LineTimer("line"):
        timed()
    times = sorted(sorted(point) for point in Checkpoints().get_checkpoints())
    Checkpoints().clear()
    rules = {name: dict(rule) for name, rule in RULES.items()}
    fetched = rp_download.file(wanted["url"]) if "url" in wanted else None
    many = download_files_from_urls(job["id"], [wanted["url"], None]) if "url" in wanted else None
    text = None
    if fetched:
        with open(fetched["file_path"], "rb") as file:
            text = file.read().decode()
    kept = rp_upload.upload_in_memory_object("a.bin", b"abc")
    with open(kept, "rb") as file:
        content = file.read().decode()
    rp_cleanup.clean(["local_upload"])
    return {
        "validated": [
            validate({"word": "tea", "share": 1}, {k: rules[k] for k in ("word", "share")}),
            validate({"word": "TEA", "other": 1, "share": "x"}, dict(rules)),
        ],
        "times": times,
        "kept": kept,
        "content": content,
        "cache": [
            resolve_model_cache_path_from_hugginface_repository(name) for name in ("a/b", "a/b:c", ":c")
        ],
        "refused": refused("http://127.0.0.1:1/x.png") if "url" not in wanted else None,
        "original": fetched and fetched["original_name"],
        "type": fetched and fetched["type"],
        "fetched": text,
        "many": many and [path and path.endswith(".txt") for path in many],
    }


runpod.serverless.start({"handler": handler})

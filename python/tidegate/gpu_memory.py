"""GPU memory of this process: how much is reserved, and what to do when there is none left.

The classes are recognised by their names: a library that the model has not imported cannot have raised.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES = ("torch", "cupy", "cupy_backends")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the exception, or one that led to it, says that a GPU has no memory left."""
    return any(map(_says_out_of_memory, _chain(error)))


def _says_out_of_memory(error: BaseException) -> bool:
    for kind in type(error).__mro__:
        package = str(kind.__module__).partition(".")[0]
        if kind.__name__ == "OutOfMemoryError" and package in _LIBRARIES:
            return True
        if package in ("jax", "jaxlib") and kind.__name__.endswith("RuntimeError"):
            return "RESOURCE_EXHAUSTED" in str(error)
    return False


def release(error: BaseException) -> None:
    """Free the memory that the failed job holds, so that the next job has it.

    The frames of the traceback keep the job's tensors alive, and the allocator keeps freed memory.
    """
    import gc
    import traceback

    for one in _chain(error):
        traceback.clear_frames(one.__traceback__)
        one.__traceback__ = None
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    try:
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
            # The failed job has taken all there was; that is not what the model needs.
            for device in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(device)
        if cupy is not None:
            cupy.get_default_memory_pool().free_all_blocks()
    except Exception:  # the job has failed already, and the next one shows whether memory is back
        return


def reserved() -> "tuple[int, int] | None":
    """Return the bytes that the allocator has reserved now, and at most; of the GPU where that is the most.

    `None` without a library that reports them, and before it has used a GPU.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    try:
        if torch is not None and torch.cuda.is_initialized():
            cuda = torch.cuda
            devices = range(cuda.device_count())
            peak, now = max((cuda.max_memory_reserved(n), cuda.memory_reserved(n)) for n in devices)
            return int(now), int(peak)
        if cupy is not None and (now := cupy.get_default_memory_pool().total_bytes()) > 0:
            return int(now), int(now)  # it keeps what it has reserved
    except Exception:  # a partly imported library, or a module of the model with this name
        return None
    return None


def usage() -> str:
    """Return how much GPU memory this process has reserved, as a part of a sentence; empty if unknown."""
    found = reserved() or _jax_memory()
    if found is None:
        return ""
    now, most = map(_gib, found)
    return f"the process of the model had reserved {now} of GPU memory, at most {most}"


def _jax_memory() -> "tuple[int, int] | None":
    # Called after an error of JAX only, so its devices are initialised.
    jax = sys.modules.get("jax")
    try:
        stats = [] if jax is None else [device.memory_stats() for device in jax.local_devices()]
        most, now = max((each["peak_bytes_in_use"], each["bytes_in_use"]) for each in stats if each)
        return int(now), int(most)
    except Exception:  # a device without statistics
        return None


def without_other_processes(text: str) -> str:
    """Remove what torch says about other processes: clients must not learn what else runs on the GPU."""
    import re

    return re.sub(r"Process \d+ has [\d.]+ \w+ memory in use\. ?", "", text)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _chain(error: BaseException) -> "Iterator[BaseException]":
    """Yield the exception and those that led to it, each once."""
    seen: set[int] = set()
    open_ends = [error]
    while open_ends:
        one = open_ends.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        open_ends += [other for other in (one.__cause__, one.__context__) if other is not None]
        yield one

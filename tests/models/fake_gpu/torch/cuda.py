"""A device with 1 GiB of memory. Tensors are objects that give their memory back when they are collected."""

import os

GIB = 2**30

_initialized = False
_error = ""
_one_time_error = ""
_reserved = 0
_most_reserved = 0
_alive = 0


class OutOfMemoryError(RuntimeError):
    """Replaced by the class of the package."""


def _record(call: str) -> None:
    """Append a call to the file of CALLS."""
    with open(os.environ["CALLS"], "a") as file:
        file.write(f"{os.getpid()} {call}\n")


def is_initialized() -> bool:
    return _initialized


def init() -> None:
    global _initialized
    _initialized = True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def memory_reserved(device: int = 0) -> int:
    return _reserved


def max_memory_reserved(device: int = 0) -> int:
    return _most_reserved


def reset_peak_memory_stats(device: int = 0) -> None:
    global _most_reserved
    _record("reset_peak_memory_stats")
    _most_reserved = _reserved


def synchronize(device: int = 0) -> None:
    global _one_time_error
    _record("synchronize")
    error, _one_time_error = _error or _one_time_error, ""
    if error:
        raise RuntimeError(error)


def empty_cache() -> None:
    global _reserved
    _record("empty_cache")
    _reserved = _alive


def break_context(reason: str) -> None:
    """Let every later call fail."""
    global _error
    init()
    _error = reason


def fail_once(reason: str) -> None:
    """Let the next call fail."""
    global _one_time_error
    init()
    _one_time_error = reason


class Tensor:
    """Occupies device memory as long as it exists."""

    def __init__(self, size: int) -> None:
        global _alive, _reserved, _most_reserved
        init()
        self.size = 0
        if _error:
            raise RuntimeError(_error)
        if _alive + size > GIB:
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / GIB:.2f} GiB. GPU 0 has a total capacity of "
                "1.00 GiB of which 0 bytes is free. Process 4711 has 0.25 GiB memory in use. Including "
                "non-PyTorch memory, this process has 0.75 GiB memory in use."
            )
        self.size = size
        _alive += size
        _reserved = max(_reserved, _alive)
        _most_reserved = max(_most_reserved, _reserved)

    def __del__(self) -> None:
        global _alive
        _alive -= self.size

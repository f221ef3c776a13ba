"""Finds out whether this process can still use its GPU.

Some errors of a GPU are sticky: after a failed assertion in a kernel or an illegal memory access, every later
call in this process fails, and only a new process helps. They are reported late, by whatever call comes next,
and user code may swallow them. Synchronising the device reports them reliably.

Nothing is imported here: a model that has not imported a GPU library has not used a GPU.
`python/src/gpu_check.rs` decides when a check runs.
"""

import sys
from functools import partial

from tidegate.error_text import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def is_used() -> bool:
    """Return whether this process has initialised a GPU library."""
    return next(_devices(), None) is not None


def check() -> "str | None":
    """Return the error of a GPU that this process can no longer use, in one line."""
    for synchronise in _devices():
        # Twice: an error that the first call has cleared is not sticky.
        if _error(synchronise) is not None and (error := _error(synchronise)) is not None:
            return describe(error).partition("\n")[0]
    return None


def _error(synchronise: "Callable[[], object]") -> "BaseException | None":
    from tidegate.gpu_memory import is_out_of_memory

    try:
        synchronise()
    except Exception as error:
        return None if is_out_of_memory(error) else error
    return None


def _devices() -> "Iterator[Callable[[], object]]":
    """Yield a function for each device with a context of this process; it waits for the device.

    Other devices are not touched: that would create a context there, which occupies memory.
    """
    torch, cupy, jax = map(sys.modules.get, ("torch", "cupy", "jax"))
    try:
        # They share the context of a device, so one of them is enough.
        if torch is not None and torch.cuda.is_initialized():
            yield from _torch_devices(torch)
        elif cupy is not None and cupy.get_default_memory_pool().total_bytes() > 0:
            yield cupy.cuda.runtime.deviceSynchronize
        elif jax is not None:
            yield from _jax_devices(jax)
    except Exception:  # a partly imported library, or a module of the model with this name
        return


def _jax_devices(jax: "Any") -> "Iterator[Callable[[], object]]":
    # Asking JAX for its devices would initialise them. No public function says whether they are.
    bridge = sys.modules["jax._src.xla_bridge"]
    if not bridge.backends_are_initialized():
        return
    for device in jax.local_devices():
        if device.platform == "gpu":
            yield partial(_use_jax_device, jax, device)


def _use_jax_device(jax: "Any", device: "Any") -> None:
    jax.device_put(0, device).block_until_ready()


def _torch_devices(torch: "Any") -> "Iterator[Callable[[], object]]":
    current = torch.cuda.current_device()
    for device in range(torch.cuda.device_count()):
        if device == current or torch.cuda.memory_reserved(device) > 0:
            yield partial(torch.cuda.synchronize, device)

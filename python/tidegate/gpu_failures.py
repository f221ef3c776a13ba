"""What a failed job means for the GPU of its process; called before the job ends."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidegate._native import Job

_LIBRARIES = ("torch", "cupy", "jax")


def explain(job: "Job", error: BaseException, text: str, trace: str) -> "tuple[str, str]":
    """Return the error text and the traceback of a failed job, and repair what can be repaired.

    After an out-of-memory error the memory is freed. If the process can no longer use its GPU, the server
    replaces it after this job.
    """
    if not any(name in sys.modules for name in _LIBRARIES):
        return text, trace
    try:
        return _explain(job, error, text, trace)
    except BaseException:  # the exception and the libraries are user code; the job must still end
        return text, trace


def after_failed_batch(error: BaseException) -> None:
    """Repair what can be repaired before the items of a failed call run again, each alone.

    A process that can no longer use its GPU exits: the server replaces it and runs the items there.
    """
    if not any(name in sys.modules for name in _LIBRARIES):
        return
    from tidegate import _native, gpu_context, gpu_memory

    try:
        if gpu_memory.is_out_of_memory(error):
            gpu_memory.release(error)
        broken = gpu_context.check()
    except BaseException:  # the exception and the libraries are user code
        return
    if broken is not None:
        _native.log("error", "tidegate.batch", f"the process can no longer use its GPU: {broken}")
        _native.exit_now(1)


def _explain(job: "Job", error: BaseException, text: str, trace: str) -> "tuple[str, str]":
    from tidegate import gpu_context, gpu_memory

    if gpu_memory.is_out_of_memory(error):
        text, trace = gpu_memory.without_other_processes(text), gpu_memory.without_other_processes(trace)
        usage = gpu_memory.usage()
        text += f" ({usage})" if usage else ""
        gpu_memory.release(error)
    broken = gpu_context.check()
    if broken is not None:
        job.broken(broken)
        text += f" (the process can no longer use its GPU and is being replaced: {broken})"
    return text, trace

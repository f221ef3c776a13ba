"""The child process: from its first instruction to its last.

Started by the server as `python -u -c "from tidegate.child import main; main()"`. The order is the point of
this file: the channel is moved out of the way first, our streams replace Python's before any user code is
imported, and slots are connected only when the model is ready.
"""

import os
import sys
from _contextvars import copy_context

from tidegate import _native, sdk
from tidegate.current import CURRENT
from tidegate.describe import Indescribable, describe
from tidegate.errors import CancelationException, LoadError, OutputError
from tidegate.handler import is_script
from tidegate.loader import Target, load
from tidegate.outputs import limit_files, simplify
from tidegate.plan import Plan, Plans
from tidegate.report import describe as describe_error
from tidegate.report import load_reason, traceback_text
from tidegate.threads import inherit_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import signal as _signal
    from collections.abc import Awaitable
    from typing import NoReturn

    from tidegate._native import Init
    from tidegate.describe import Description
else:
    import _signal  # `signal` wraps it in enums, which are large

_EXIT_WITHIN = 1.0  # seconds that the user's exit handlers get


def main() -> None:
    """Run the child. Never returns."""
    init = _native.begin()
    stage = "schema"
    try:
        try:
            schema = describe(init)  # forks, so before there are threads
        finally:
            _native.start_threads()
            _prepare(init)
        _native.described(schema.document)
        stage = "load"
        if is_script(init.predictor_ref):
            _run_script(init, schema)
        targets = _load(init)
        primary = targets[0]
        n_slots = _number_of_slots(init, schema, primary)
        loop = _setup_loop(targets)
        stage = "setup"
        for target in targets:
            _run_setup(target, loop)
        stage = "load"
        plans = _plans(init, schema, targets)
        stage = "run"
        _serve(init, schema, primary, plans, n_slots, loop)
    except BaseException as error:
        _give_up(stage, error)
    _leave(0)


def _run_script(init: "Init", schema: "Description") -> "NoReturn":
    """Run a script that hands over its handler. Jobs are served inside of its call of `start`."""
    from tidegate.handler import entry, script

    path = os.path.abspath(init.predictor_ref.rpartition(":")[0])
    name = os.path.basename(path)
    served = False

    def serve(config: "dict[str, object]") -> None:
        # Nothing of ours may reach the script, which could take it for its own.
        nonlocal served
        stage = "setup"
        try:
            if served:
                raise LoadError(f"`{name}` calls `runpod.serverless.start` twice; a script has one handler")
            served = True
            handed = entry.Handed(config, init.num_slots, init.room)
            entry.run_checks()
            handed.amend(schema.document)
            loop = _setup_loop([handed.target]) or handed.make_loop()
            stage = "run"
            _serve(init, schema, handed.target, handed.plans, handed.slots, loop)
        except BaseException as error:
            _give_up(stage, error)

    entry.install(serve)
    script.run(path)
    if not served:
        raise LoadError(
            f"`{name}` has ended without calling `runpod.serverless.start`; let it hand over its handler: "
            '`runpod.serverless.start({"handler": handler})`'
        )
    _leave(0)


def _prepare(init: "Init") -> None:
    """Give the process to the user's code: streams, signals, threads, paths."""
    _native.configure(
        current=CURRENT,
        copy_context=copy_context,
        cancelation=CancelationException,
        output_error=OutputError,
        on_wake=_native.on_wake,
        simplify=simplify,
    )
    limit_files(init.max_output_file)
    _replace_streams()
    _signal.signal(_signal.SIGURG, _native.on_wake)
    # The terminal's Ctrl-C goes to the whole group; when to stop is the server's decision.
    # A handler and not SIG_IGN, which the user's subprocesses would inherit.
    _signal.signal(_signal.SIGINT, _ignore)
    os.register_at_fork(after_in_child=_native.after_fork)
    inherit_jobs()
    sdk.install()
    os.chdir(init.model_dir)
    # In the place of the empty entry, which means "wherever we happen to be".
    sys.path[: int(sys.path[:1] == [""])] = [init.model_dir]
    sys.argv = [init.predictor_ref.partition(":")[0]]


def _replace_streams() -> None:
    import io

    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = _native.TextStream(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    io.TextIOBase.register(_native.TextStream)
    io.BufferedIOBase.register(_native.ByteStream)


def _ignore(number: int, frame: object) -> None:
    """Do nothing about a signal."""


def _load(init: "Init") -> "list[Target]":
    """Load what answers predictions, then what answers trainings, if it is something else."""
    if init.train_mode:
        if init.train_ref is None:
            raise LoadError("the server runs in train mode, but the model names no train function")
        return [load(init.train_ref, role="train")]
    targets = [load(init.predictor_ref)]
    if init.train_ref is not None:
        targets.append(load(init.train_ref, role="train", beside=targets[0]))
    return targets


def _number_of_slots(init: "Init", schema: "Description", primary: Target) -> int:
    n_slots = init.num_slots or schema.concurrency or 1
    if n_slots > 1 and not _is_async(primary):
        raise LoadError("COG_MAX_CONCURRENCY > 1 requires an async run() or predict() method")
    return n_slots


def _is_async(target: Target) -> bool:
    from tidegate.shape import is_async

    return is_async(target.shape)


def _setup_loop(targets: "list[Target]") -> "asyncio.AbstractEventLoop | None":
    """Make the model's event loop, if anything in it is asynchronous. `asyncio` is large: not otherwise."""
    from tidegate.shape import is_async, shape_of

    setups = [shape_of(target.setup) for target in targets if target.setup is not None]
    if not any(is_async(shape) for shape in [*setups, *(target.shape for target in targets)]):
        return None
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def _run_setup(target: Target, loop: "asyncio.AbstractEventLoop | None") -> None:
    if target.setup is None:
        return
    kwargs = {"weights": os.environ.get("COG_WEIGHTS") or None} if target.setup_takes_weights else {}
    result = target.setup(**kwargs)
    if loop is not None and hasattr(result, "__await__"):
        loop.run_until_complete(_awaited(result))


async def _awaited(result: "Awaitable[object]") -> object:
    return await result


def _plans(init: "Init", schema: "Description", targets: "list[Target]") -> Plans:
    from tidegate.inputs import converter

    def plan(target: Target, *, is_training: bool) -> Plan:
        parameters = schema.training_inputs if is_training else schema.inputs
        return Plan(
            target,
            converter(parameters),
            is_training=is_training,
            yields=schema.yields("TrainingOutput" if is_training else "Output"),
            opens_files=any(parameter.kind == "file" for parameter in parameters),
        )

    first = plan(targets[0], is_training=init.train_mode)
    if len(targets) == 1:
        return Plans(first, first)
    return Plans(first, plan(targets[1], is_training=True))


def _serve(
    init: "Init",
    schema: "Description",
    primary: Target,
    plans: Plans,
    n_slots: int,
    loop: "asyncio.AbstractEventLoop | None",
) -> None:
    # The loop that runs the jobs; without one they run on this thread.
    job_loop = loop if plans.prediction.is_async else None
    if primary.healthcheck is not None:
        from tidegate import health

        health.install(primary.healthcheck, job_loop)
    slots = _native.connect(init.socket, n_slots)
    if job_loop is None:
        _native.set_solo()
    _native.ready(
        n_slots=n_slots,
        schema=schema.document,
        is_async=job_loop is not None,
        has_healthcheck=primary.healthcheck is not None,
        python=".".join(map(str, sys.version_info[:3])),
        sdk=sdk.version(),
    )
    if job_loop is not None:
        from tidegate import serve_async

        serve_async.serve(slots, plans, job_loop)
    else:
        from tidegate import serve_sync

        serve_sync.serve(slots[0], plans, loop)


def _give_up(stage: str, error: BaseException) -> "NoReturn":
    """Say why, and end the process with code 1."""
    traceback: str | None = traceback_text(error)
    if isinstance(error, Indescribable):
        reason, traceback = str(error), error.traceback
    elif isinstance(error, LoadError):
        reason, traceback = str(error), None  # ours: the frames are not the user's
    elif stage == "load":
        reason = f"failed to load predictor: {load_reason(error)}"
    elif stage == "setup":
        reason = f"setup failed: {describe_error(error)}"
    else:
        reason = f"the child cannot go on: {describe_error(error)}"
    _native.fatal(stage, reason, traceback)
    _leave(1)


def _leave(code: int) -> "NoReturn":
    """Run exit handlers, but never wait for the user's threads."""
    _native.exit_after(_EXIT_WITHIN, code)
    try:
        import atexit

        atexit._run_exitfuncs()
    except BaseException as error:
        _native.tell_operator(traceback_text(error))
    _native.exit_now(code)

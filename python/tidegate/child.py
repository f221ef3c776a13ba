"""The main function of the child process.

The server starts it as `python -u -c "from tidegate.child import main; main()"`. The order of the steps
matters: first the control channel is moved away from stdin and stdout, then our streams replace Python's
before any user code is imported, and the slots are connected only when the model is ready.
"""

import os
import sys
from _contextvars import copy_context

from tidegate import _native, gpu_context, sdk
from tidegate.current import CURRENT
from tidegate.error_text import describe as describe_error
from tidegate.error_text import load_reason, traceback_text
from tidegate.errors import CancelationException, LoadError, OutputError
from tidegate.handler import is_script
from tidegate.loader import EntryPoint, load
from tidegate.outputs import set_max_file_bytes, simplify
from tidegate.plan import Plan, Plans
from tidegate.schema_fork import SchemaBuildError, build_schema
from tidegate.threads import inherit_jobs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import signal as _signal
    from collections.abc import Awaitable
    from typing import NoReturn

    from tidegate._native import InitMessage
    from tidegate.batch_plan import BatchPlan
    from tidegate.schema_fork import ModelInterface
else:
    import _signal  # `signal` wraps it in enums, which are large

_EXIT_TIMEOUT = 1.0  # seconds for the model's exit handlers


def main() -> None:
    """Run the child. Never returns."""
    init = _native.receive_init()
    stage = "schema"
    try:
        try:
            schema = build_schema(init)  # forks, so it must run before threads are started
        finally:
            _native.start_threads()
            _prepare(init)
        _native.send_schema(schema.document)
        stage = "load"
        if is_script(init.predictor_ref):
            _run_script(init, schema)
        if init.waits_for_setup:
            from tidegate import spare

            spare.wait_after_imports(init)
        entry_points = _load(init)
        primary = entry_points[0]
        n_slots = _number_of_slots(init, schema, primary)
        loop = _create_loop_if_async(entry_points)
        stage = "setup"
        for entry_point in entry_points:
            _run_setup(entry_point, loop)
        stage = "load"
        plans = _make_plans(init, schema, entry_points)
        stage = "run"
        _serve(init, schema, primary, plans, n_slots, loop)
    except BaseException as error:
        _exit_with_error(stage, error, init)
    _exit(0)


def _run_script(init: "InitMessage", schema: "ModelInterface") -> "NoReturn":
    """Run a script that registers a handler. Its call of `start` serves the jobs."""
    from tidegate.handler import entry, script

    path = os.path.abspath(init.predictor_ref.rpartition(":")[0])
    name = os.path.basename(path)
    served = False

    def serve(config: "dict[str, object]") -> None:
        # Our exceptions must not reach the script, which might catch them as its own.
        nonlocal served
        stage = "setup"
        try:
            if served:
                raise LoadError(
                    f"`{name}` calls `runpod.serverless.start` twice; a script can register one handler"
                )
            served = True
            registered = entry.RegisteredHandler(config, init)
            entry.run_checks()
            registered.add_to_schema(schema.document)
            loop = _create_loop_if_async([registered.entry_point]) or registered.make_loop()
            stage = "run"
            _serve(init, schema, registered.entry_point, registered.plans, registered.slots, loop)
        except BaseException as error:
            _exit_with_error(stage, error, init)

    entry.install(serve)
    if init.waits_for_setup:
        from tidegate import spare

        spare.wait_after_first_imports(path)
    script.run(path)
    if not served:
        raise LoadError(
            f"`{name}` ended without calling `runpod.serverless.start`; register a handler with "
            '`runpod.serverless.start({"handler": handler})`'
        )
    _exit(0)


def _prepare(init: "InitMessage") -> None:
    """Prepare the process for user code: streams, signals, threads, paths."""
    _native.configure(
        current=CURRENT,
        copy_context=copy_context,
        cancelation=CancelationException,
        output_error=OutputError,
        on_cancel_signal=_native.on_cancel_signal,
        simplify=simplify,
    )
    _native.set_gpu_functions(gpu_context.is_used, gpu_context.check, _gpu_memory)
    set_max_file_bytes(init.max_output_file)
    _replace_streams()
    _signal.signal(_signal.SIGURG, _native.on_cancel_signal)
    # A terminal sends Ctrl-C to the whole process group; the server decides when the child stops.
    # A handler and not SIG_IGN, which subprocesses of the model would inherit.
    _signal.signal(_signal.SIGINT, _ignore)
    os.register_at_fork(after_in_child=_native.after_fork)
    inherit_jobs()
    sdk.install()
    os.chdir(init.model_dir)
    # Replaces the empty entry, which means the current directory.
    sys.path[: int(sys.path[:1] == [""])] = [init.model_dir]
    sys.argv = [init.predictor_ref.partition(":")[0]]


def _gpu_memory() -> "tuple[int, int] | None":
    from tidegate import gpu_memory  # only models that use a GPU need it

    return gpu_memory.reserved()


def _replace_streams() -> None:
    import io

    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = _native.TextStream(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    io.TextIOBase.register(_native.TextStream)
    io.BufferedIOBase.register(_native.ByteStream)


def _ignore(number: int, frame: object) -> None:
    """Ignore the signal."""


def _load(init: "InitMessage") -> "list[EntryPoint]":
    """Load the function for predictions, then the one for trainings, if it is another one."""
    if init.train_mode:
        if init.train_ref is None:
            raise LoadError("the server runs in train mode, but cog.yaml has no `train` entry")
        return [load(init.train_ref, role="train")]
    entry_points = [load(init.predictor_ref)]
    if init.train_ref is not None:
        entry_points.append(load(init.train_ref, role="train", shared_with=entry_points[0]))
    return entry_points


def _number_of_slots(init: "InitMessage", schema: "ModelInterface", primary: EntryPoint) -> int:
    n_slots = init.num_slots or schema.concurrency or 1
    if n_slots > 1 and not _is_async(primary):
        raise LoadError("COG_MAX_CONCURRENCY > 1 requires an async run() or predict() method")
    return n_slots


def _is_async(entry_point: EntryPoint) -> bool:
    from tidegate.call_kind import is_async

    return is_async(entry_point.call_kind)


def _create_loop_if_async(entry_points: "list[EntryPoint]") -> "asyncio.AbstractEventLoop | None":
    """Create the model's event loop if any of its functions is asynchronous. `asyncio` uses much memory."""
    from tidegate.call_kind import call_kind_of, is_async

    setups = [
        call_kind_of(entry_point.setup) for entry_point in entry_points if entry_point.setup is not None
    ]
    calls = [entry_point.call_kind for entry_point in entry_points]
    batches = [
        call_kind_of(entry_point.batch) for entry_point in entry_points if entry_point.batch is not None
    ]
    if not any(is_async(kind) for kind in (*setups, *calls, *batches)):
        return None
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def _run_setup(entry_point: EntryPoint, loop: "asyncio.AbstractEventLoop | None") -> None:
    if entry_point.setup is None:
        return
    kwargs = {"weights": os.environ.get("COG_WEIGHTS") or None} if entry_point.setup_takes_weights else {}
    result = entry_point.setup(**kwargs)
    if loop is not None and hasattr(result, "__await__"):
        loop.run_until_complete(_await(result))


async def _await(result: "Awaitable[object]") -> object:
    return await result


def _make_plans(init: "InitMessage", schema: "ModelInterface", entry_points: "list[EntryPoint]") -> Plans:
    from tidegate.inputs import converter

    def plan(entry_point: EntryPoint, *, is_training: bool) -> Plan:
        parameters = schema.training_inputs if is_training else schema.inputs
        return Plan(
            entry_point,
            converter(parameters),
            is_training=is_training,
            yields=schema.yields("TrainingOutput" if is_training else "Output"),
            opens_files=any(parameter.kind == "file" for parameter in parameters),
        )

    first = plan(entry_points[0], is_training=init.train_mode)
    batch = None if init.train_mode else _make_batch_plan(init, first, entry_points[0])
    if len(entry_points) == 1:
        return Plans(first, first, batch)
    return Plans(first, plan(entry_points[1], is_training=True), batch)


def _make_batch_plan(init: "InitMessage", plan: Plan, entry_point: EntryPoint) -> "BatchPlan | None":
    asks = init.batch_size is not None or init.batch_wait_micros is not None
    # A model that has marked a function has loaded that module.
    if entry_point.batch is None and not asks and "tidegate.batching" not in sys.modules:
        return None
    from tidegate.batch_predictor import plan_batches

    return plan_batches(init, plan, entry_point)


def _serve(
    init: "InitMessage",
    schema: "ModelInterface",
    primary: EntryPoint,
    plans: Plans,
    n_slots: int,
    loop: "asyncio.AbstractEventLoop | None",
) -> None:
    # The loop that runs the jobs; without one they run on the main thread.
    runner = plans.batch or plans.prediction
    job_loop = loop if runner.is_async else None
    if plans.batch is not None:
        n_slots = 1  # one batch runs at a time
    if primary.healthcheck is not None:
        from tidegate import health

        health.install(primary.healthcheck, job_loop)
    slots = _native.connect_slots(init.socket, n_slots)
    if job_loop is None:
        _native.set_single_job()
    _native.send_ready(
        n_slots=n_slots,
        schema=schema.document,
        is_async=job_loop is not None,
        has_healthcheck=primary.healthcheck is not None,
        python=".".join(map(str, sys.version_info[:3])),
        sdk=sdk.version(),
        batch=None if plans.batch is None else plans.batch.limits,
    )
    if gpu_context.is_used():
        _native.report_gpu_memory()
    if job_loop is not None:
        from tidegate import serve_async

        serve_async.serve(slots, plans, job_loop)
    else:
        from tidegate import serve_sync

        serve_sync.serve(slots[0], plans, loop)


def _exit_with_error(stage: str, error: BaseException, init: "InitMessage") -> "NoReturn":
    """Report the error to the server and exit with code 1."""
    traceback: str | None = traceback_text(error)
    if isinstance(error, SchemaBuildError):
        reason, traceback = str(error), error.traceback
    elif isinstance(error, LoadError):
        reason, traceback = str(error), None  # our own error: the traceback would not help the user
    elif stage == "load":
        reason = f"failed to load predictor: {load_reason(error)}"
    elif stage == "setup":
        reason = f"setup failed: {describe_error(error)}"
    else:
        reason = f"the child failed: {describe_error(error)}"
    if isinstance(error, ImportError) and not is_script(init.predictor_ref):
        from tidegate.requirements import advice

        reason += advice(init.requirements, init.model_dir)
    _native.send_fatal(stage, reason, traceback)
    _exit(1)


def _exit(code: int) -> "NoReturn":
    """Run exit handlers and exit, without waiting for the model's threads."""
    _native.exit_after(_EXIT_TIMEOUT, code)
    try:
        import atexit

        atexit._run_exitfuncs()
    except BaseException as error:
        _native.write_server_log(traceback_text(error))
    _native.exit_now(code)

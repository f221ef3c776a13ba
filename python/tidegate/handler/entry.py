"""Replaces `runpod.serverless.start`: registers the handler, runs the fitness checks, serves jobs."""

import json
import os
import sys
import time

from tidegate.call_kind import is_async
from tidegate.error_text import describe, traceback_text
from tidegate.errors import LoadError
from tidegate.handler import batches, concurrency
from tidegate.handler.calls import ResultRules, converter, send_progress, set_event_loop, wrap
from tidegate.handler.debugger import Debugger
from tidegate.handler.import_hook import patch_on_import
from tidegate.loader import EntryPoint
from tidegate.outputs import use_runpod_types
from tidegate.plan import Plan, Plans
from tidegate.run_sync import drop_cog_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from tidegate._native import InitMessage

    Config = dict[str, Any]
    Serve = Callable[[Config], None]

_SHIMS = __file__.rpartition("/")[0] + "/shims"
_HANDLER_INFO = "x-runpod-handler"
# Set by the server for `--rp-debugger`.
_DEBUGGER_ENABLED = "TIDEGATE_RP_DEBUGGER"
# Set by `tidegate worker`: a file that exists until the machine has passed its fitness checks.
_PENDING_CHECK = "TIDEGATE_UNCHECKED"
_STARTED = time.perf_counter()
# Set by the server for the arguments after `--`: a JSON list.
_SCRIPT_ARGS = "TIDEGATE_SCRIPT_ARGS"
# Set by the server: `sys.argv[0]` and the working directory that `python` would give the script.
_SCRIPT_NAME = "TIDEGATE_SCRIPT_NAME"
_SCRIPT_FOLDER = "TIDEGATE_SCRIPT_FOLDER"
# Set by `tidegate serve`: the slots of an async handler that does not limit its concurrency.
_ASYNC_SLOTS = "TIDEGATE_ASYNC_HANDLER_SLOTS"
# Runpod's own arguments and their defaults; a script may read them from its config.
_ARGUMENTS: "dict[str, Any]" = {
    "rp_log_level": None,
    "rp_debugger": None,
    "rp_serve_api": None,
    "rp_api_port": 8000,
    "rp_api_concurrency": 1,
    "rp_api_host": "localhost",
    "test_input": None,
}
_FLAGS = ("rp_debugger", "rp_serve_api")


class RegisteredHandler:
    """A handler and how it is run. Immutable."""

    __slots__ = ("_config", "entry_point", "plans", "slots")

    def __init__(self, config: "Config", init: "InitMessage") -> None:
        """Register the handler.

        Without `num_slots` the script decides about its concurrency, and may change it up to `max_slots`.
        """
        slots, max_slots = init.num_slots, init.max_slots
        handler = config.get("handler")
        if not callable(handler):
            raise LoadError(
                f"the handler of `runpod.serverless.start` is {describe_value(handler)}, not a function"
            )
        self._config = config
        rules = ResultRules(_version(), _debugger(config))
        batched = batches.is_batched(handler)
        if not batched and (init.batch_size is not None or init.batch_wait_micros is not None):
            raise LoadError(
                "--batch-size and --batch-wait need a handler that takes a list of jobs and is marked with "
                "`@tidegate.batched`; mark it or remove the options"
            )
        call = batches.wrap_batch(handler) if batched else wrap(handler, rules)
        self.entry_point = EntryPoint(None, call)
        convert = converter(refresh=bool(config.get("refresh_worker")))
        plan = Plan(self.entry_point, convert, is_training=False, yields=False, opens_files=False)
        plan.error_prefix = ""
        drop_cog_prefix()
        use_runpod_types()
        batch = batches.plan_batches(init, handler, call, plan, rules) if batched else None
        self.plans = Plans(plan, plan, batch)
        modifier, kind = config.get("concurrency_modifier"), self.entry_point.call_kind
        if batch is not None:
            self.slots = 1
        elif max_slots is not None and slots is None and modifier is not None and is_async(kind):
            self.slots = max_slots
            concurrency.start(modifier)
        else:
            self.slots = _number_of_slots(config, kind, slots)

    def make_loop(self) -> "asyncio.AbstractEventLoop | None":
        """Create the event loop for awaitables that a synchronous handler returns, if it uses asyncio."""
        if "asyncio" not in sys.modules:
            return None
        import asyncio

        loop = asyncio.new_event_loop()
        set_event_loop(loop)
        return loop

    def add_to_schema(self, document: "dict[str, Any]") -> None:
        """Add what is known only after the script has run to the model's schema."""
        document[_HANDLER_INFO] = {
            "shape": self.entry_point.call_kind,
            "return_aggregate_stream": bool(self._config.get("return_aggregate_stream")),
            "refresh_worker": bool(self._config.get("refresh_worker")),
        }
        if "generator" in self.entry_point.call_kind:
            document["paths"]["/predictions"]["post"]["x-cog-streaming"] = True
            document["components"]["schemas"]["Output"] = {
                "title": "Output",
                "type": "array",
                "items": {},
                "x-cog-array-type": "iterator",
            }


def install(serve: "Serve") -> None:
    """Prepare the import of `runpod`: the real package, or our replacement if it is not installed."""

    def start(config: "Config") -> None:
        print(f"--- Starting Serverless Worker |  Version {_version()} ---")
        config["reference_counter_start"] = time.perf_counter()
        config["rp_args"] = _arguments()
        serve(config)

    def patch(serverless: "ModuleType") -> None:
        module: Any = serverless
        module.start = start
        module.progress_update = send_progress
        known: Any = sys.modules.get("runpod.serverless.modules.rp_progress")
        if known is not None:
            known.progress_update = send_progress

    sys.argv[0] = os.environ.pop(_SCRIPT_NAME, sys.argv[0])
    sys.argv += json.loads(os.environ.pop(_SCRIPT_ARGS, "[]"))
    folder = os.environ.pop(_SCRIPT_FOLDER, ".")
    # A child that runs as another user may have no access; it stays in the script's own folder.
    if os.access(folder, os.X_OK):
        os.chdir(folder)
    # At the end: it must never shadow an installed package.
    sys.path.append(_SHIMS)
    patch_on_import("runpod.serverless", patch)


def _arguments() -> "dict[str, Any]":
    """Remove Runpod's own arguments from `sys.argv`, as its package does; the others are the script's."""
    found = dict(_ARGUMENTS)
    if os.environ.get(_DEBUGGER_ENABLED) == "1":
        found["rp_debugger"] = True
    if len(sys.argv) > 1:
        import argparse

        parser = argparse.ArgumentParser(prog="runpod")
        for name, default in found.items():
            if name in _FLAGS:
                parser.add_argument(f"--{name}", action="store_true", default=default)
            else:
                parser.add_argument(f"--{name}", type=type(default or ""), default=default)
        known, others = parser.parse_known_args()
        sys.argv[1:] = others
        found = vars(known)
    if found["test_input"]:
        found["test_input"] = json.loads(found["test_input"])
    if found["rp_log_level"]:
        runpod: Any = sys.modules["runpod"]
        runpod.RunPodLogger().set_level(found["rp_log_level"])
    return found


def _debugger(config: "Config") -> Debugger:
    """Create the debugger; the script may have changed its arguments in the config."""
    wanted = config.get("rp_args", {}).get("rp_debugger")
    return Debugger((config["reference_counter_start"] - _STARTED) * 1000 if wanted else None)


def run_checks() -> None:
    """Run the script's fitness checks, then those of the machine. Stops at the first that fails."""
    fitness: Any = sys.modules.get("runpod.serverless.modules.rp_fitness")
    pending = _pending_check_file(fitness)
    if pending is not None:
        # Both read the environment variables that disable them.
        fitness._ensure_gpu_check_registered()
        fitness._ensure_system_checks_registered()
    for check in list(getattr(fitness, "_fitness_checks", ())):
        try:
            result = check()
            if hasattr(result, "__await__"):
                import asyncio

                asyncio.run(_awaited(result))
        except Exception as error:
            print(traceback_text(error), file=sys.stderr)
            name = getattr(check, "__name__", "?")
            # `tidegate worker` parses this text to report the check by its name.
            raise LoadError(f"setup failed: the fitness check `{name}` says {describe(error)}") from error
    if pending is not None:
        os.unlink(pending)


def _pending_check_file(fitness: "Any") -> "str | None":
    """Return the file that marks the machine as unchecked, if the checks must run."""
    pending = os.environ.get(_PENDING_CHECK)
    known = hasattr(fitness, "_ensure_system_checks_registered")
    return pending if pending and known and os.path.exists(pending) else None


async def _awaited(result: "Any") -> object:
    return await result


def _number_of_slots(config: "Config", kind: str, wanted: "int | None") -> int:
    default = int(os.environ.pop(_ASYNC_SLOTS, "1"))
    if not is_async(kind):
        if wanted is not None and wanted > 1:
            raise LoadError(f"{wanted} concurrent jobs require an `async def` handler; remove --concurrency")
        return 1
    modifier = config.get("concurrency_modifier")
    if wanted is not None:
        return wanted
    if modifier is None:
        return default
    number = modifier(1)
    if not isinstance(number, int) or number < 1:
        print(
            f"concurrency_modifier returned {describe_value(number)}, not a positive integer; using 1",
            file=sys.stderr,
        )
        return 1
    return number


def describe_value(value: object) -> str:
    """Describe a value for an error message."""
    return repr(value) if value is None or isinstance(value, int | float | str) else type(value).__name__


def _version() -> str:
    known = sys.modules.get("runpod.version") or sys.modules.get("runpod")
    return str(getattr(known, "__version__", "unknown"))

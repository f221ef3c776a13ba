"""What `runpod.serverless.start` does here: take the handler, see that all is well, serve jobs."""

import json
import os
import sys
import time

from tidegate.errors import LoadError
from tidegate.handler import wish
from tidegate.handler.calls import converter, know_loop, progress, wrap
from tidegate.handler.debugger import Debugger
from tidegate.handler.hook import when_imported
from tidegate.loader import Target
from tidegate.outputs import loosen
from tidegate.plan import Plan, Plans
from tidegate.report import describe, traceback_text
from tidegate.run import speak_plainly
from tidegate.shape import is_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Config = dict[str, Any]
    Serve = Callable[[Config], None]

_SHIMS = __file__.rpartition("/")[0] + "/shims"
_FACTS = "x-runpod-handler"
# Set by the server for `--rp-debugger`.
_DEBUGGER = "TIDEGATE_RP_DEBUGGER"
# Set by `tidegate worker`: a file that is there until the machine has been found fit.
_UNCHECKED = "TIDEGATE_UNCHECKED"
_BEGAN = time.perf_counter()
# Set by the server for what comes after `--`: a JSON list.
_WORDS = "TIDEGATE_SCRIPT_ARGS"
# Set by the server: as what and where `python` would have run the script.
_NAME = "TIDEGATE_SCRIPT_NAME"
_FOLDER = "TIDEGATE_SCRIPT_FOLDER"
# What a script may look for in its own config, and Runpod's own arguments for it.
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


class Handed:
    """A handler, and how it wants to be run. Nothing in it changes."""

    __slots__ = ("_config", "plans", "slots", "target")

    def __init__(self, config: "Config", slots: "int | None", room: "int | None") -> None:
        """`slots` is what the server wants; without it the script decides, up to `room` whenever it likes."""
        handler = config.get("handler")
        if not callable(handler):
            raise LoadError(
                f"the handler of `runpod.serverless.start` is {describe_value(handler)}, not a function"
            )
        self._config = config
        self.target = Target(None, wrap(handler, _version(), _debugger(config)))
        convert = converter(refresh=bool(config.get("refresh_worker")))
        plan = Plan(self.target, convert, is_training=False, yields=False, opens_files=False)
        plan.failed = ""
        speak_plainly()
        loosen()
        self.plans = Plans(plan, plan)
        modifier, shape = config.get("concurrency_modifier"), self.target.shape
        if room is not None and slots is None and modifier is not None and is_async(shape):
            self.slots = room
            wish.begin(modifier)
        else:
            self.slots = _number_of_slots(config, shape, slots)

    def make_loop(self) -> "asyncio.AbstractEventLoop | None":
        """Make the loop that a plain function's awaitables run on, for one that may know it before."""
        if "asyncio" not in sys.modules:
            return None
        import asyncio

        loop = asyncio.new_event_loop()
        know_loop(loop)
        return loop

    def amend(self, document: "dict[str, Any]") -> None:
        """Write into the model's description what is known only now that the script has run."""
        document[_FACTS] = {
            "shape": self.target.shape,
            "return_aggregate_stream": bool(self._config.get("return_aggregate_stream")),
            "refresh_worker": bool(self._config.get("refresh_worker")),
        }
        if "generator" in self.target.shape:
            document["paths"]["/predictions"]["post"]["x-cog-streaming"] = True
            document["components"]["schemas"]["Output"] = {
                "title": "Output",
                "type": "array",
                "items": {},
                "x-cog-array-type": "iterator",
            }


def install(serve: "Serve") -> None:
    """Be there when the script imports `runpod`: the real one, or ours when there is none."""

    def start(config: "Config") -> None:
        print(f"--- Starting Serverless Worker |  Version {_version()} ---")
        config["reference_counter_start"] = time.perf_counter()
        config["rp_args"] = _arguments()
        serve(config)

    def adopt(serverless: "ModuleType") -> None:
        module: Any = serverless
        module.start = start
        module.progress_update = progress
        known: Any = sys.modules.get("runpod.serverless.modules.rp_progress")
        if known is not None:
            known.progress_update = progress

    sys.argv[0] = os.environ.pop(_NAME, sys.argv[0])
    sys.argv += json.loads(os.environ.pop(_WORDS, "[]"))
    folder = os.environ.pop(_FOLDER, ".")
    # Another user may not be let in there, and stays in the script's own folder.
    if os.access(folder, os.X_OK):
        os.chdir(folder)
    # At the end: it must never hide a real one.
    sys.path.append(_SHIMS)
    when_imported("runpod.serverless", adopt)


def _arguments() -> "dict[str, Any]":
    """Take Runpod's own arguments out of `sys.argv`, as its package does; the others are the script's."""
    found = dict(_ARGUMENTS)
    if os.environ.get(_DEBUGGER) == "1":
        found["rp_debugger"] = True
    if len(sys.argv) > 1:
        import argparse

        parser = argparse.ArgumentParser(prog="runpod")
        for name, usual in found.items():
            if name in _FLAGS:
                parser.add_argument(f"--{name}", action="store_true", default=usual)
            else:
                parser.add_argument(f"--{name}", type=type(usual or ""), default=usual)
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
    """Ask what the script sees, and may have changed."""
    wanted = config.get("rp_args", {}).get("rp_debugger")
    return Debugger((config["reference_counter_start"] - _BEGAN) * 1000 if wanted else None)


def run_checks() -> None:
    """Run the script's own fitness checks, then those of the machine. The first that fails is the last."""
    fitness: Any = sys.modules.get("runpod.serverless.modules.rp_fitness")
    owed = _owed(fitness)
    if owed is not None:
        # Both know the variables that switch them off.
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
            raise LoadError(f"setup failed: the fitness check `{name}` says {describe(error)}") from error
    if owed is not None:
        os.unlink(owed)


def _owed(fitness: "Any") -> "str | None":
    """Return the file that says that the machine was not checked yet."""
    owed = os.environ.get(_UNCHECKED)
    known = hasattr(fitness, "_ensure_system_checks_registered")
    return owed if owed and known and os.path.exists(owed) else None


async def _awaited(result: "Any") -> object:
    return await result


def _number_of_slots(config: "Config", shape: str, wanted: "int | None") -> int:
    if not is_async(shape):
        if wanted is not None and wanted > 1:
            raise LoadError(f"{wanted} jobs at once need an `async def` handler; leave --concurrency away")
        return 1
    modifier = config.get("concurrency_modifier")
    if wanted is not None or modifier is None:
        return wanted or 1
    number = modifier(1)
    if not isinstance(number, int) or number < 1:
        print(f"concurrency_modifier gave {describe_value(number)}: one job at a time", file=sys.stderr)
        return 1
    return number


def describe_value(value: object) -> str:
    """Say what something is, for an error message."""
    return repr(value) if value is None or isinstance(value, int | float | str) else type(value).__name__


def _version() -> str:
    known = sys.modules.get("runpod.version") or sys.modules.get("runpod")
    return str(getattr(known, "__version__", "unknown"))

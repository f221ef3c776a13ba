"""Provides the modules `cog` and `coglet` to model code.

`cog` is the real package if it is installed, else our replacement in `tidegate/shims`. `coglet` is always
ours: the real one is the binary of another server, and two servers in one process cannot both own the
streams.
"""

import sys

from tidegate import __version__
from tidegate.errors import CancelationException
from tidegate.scope import Metrics, Scope, current_scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_SHIMS = __file__.rpartition("/")[0] + "/shims"


class _Server:
    """`coglet.server`, as far as model code may use it."""

    active = True

    def serve(self, *_args: object, **_kwargs: object) -> None:
        """Raise an error: a model cannot start a second server."""
        raise RuntimeError("this model is already served by tidegate")


class _Build:
    """`coglet.__build__`."""

    version = __version__
    git_sha = ""
    dirty = False
    build_time = ""
    rustc_version = ""


def install() -> None:
    """Make `import coglet` and `import cog` work. Must be called before any user code runs."""
    sdk = _module("coglet._sdk", Scope=Scope, MetricRecorder=Metrics, current_scope=current_scope)
    for name in ("coglet", "coglet._impl"):
        _module(
            name,
            CancelationException=CancelationException,
            __version__=__version__,
            __build__=_Build(),
            server=_Server(),
            _sdk=sdk,
        )
    # Makes it a package, so that its submodules can be imported by name.
    sys.modules["coglet"].__path__ = []
    # At the end: it must never shadow an installed package.
    sys.path.append(_SHIMS)


def _module(name: str, **names: object) -> "ModuleType":
    module = sys.modules[name] = type(sys)(name)
    vars(module).update(names)
    return module


def version() -> "str | None":
    """Return the version of `cog` that the model uses, with a suffix if it is our replacement."""
    cog = sys.modules.get("cog")
    found = getattr(cog, "__version__", None)
    if found is None or not (getattr(cog, "__file__", None) or "").startswith(_SHIMS):
        return found
    return f"{found}+tidegate"

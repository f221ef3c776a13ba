"""What `import cog` finds.

The real package, if it is installed, else our stand-in in `tidegate/shims`. Either way `coglet` is ours:
the real one is another server's binary, and two servers in one process cannot both own the streams.
"""

import sys

from tidegate import __version__
from tidegate.errors import CancelationException
from tidegate.scope import Metrics, Scope, current_scope

_SHIMS = __file__.rpartition("/")[0] + "/shims"


class _Server:
    """`coglet.server`, as far as a model may look at it."""

    active = True

    def serve(self, *_args: object, **_kwargs: object) -> None:
        """A model cannot start a second server."""
        raise RuntimeError("this model is being served by tidegate already")


class _Build:
    """`coglet.__build__`."""

    version = __version__
    git_sha = ""
    dirty = False
    build_time = ""
    rustc_version = ""


def install() -> None:
    """Makes `import coglet` and `import cog` work; before any user code."""
    module = type(sys)
    package, native, sdk = module("coglet"), module("coglet._impl"), module("coglet._sdk")
    package.__path__ = []  # a package, so that its submodules may be imported by name
    for part in (package, native):
        part.CancelationException = CancelationException
        part.__version__ = __version__
        part.__build__ = _Build()
        part.server = _Server()
        part._sdk = sdk
    sdk.Scope, sdk.MetricRecorder, sdk.current_scope = Scope, Metrics, current_scope
    sys.modules["coglet"], sys.modules["coglet._impl"], sys.modules["coglet._sdk"] = package, native, sdk
    # At the end: it must never hide a real one.
    sys.path.append(_SHIMS)


def version() -> "str | None":
    """The version of `cog` that the model uses, with a suffix when it is ours."""
    cog = sys.modules.get("cog")
    found = getattr(cog, "__version__", None)
    if found is None or not (getattr(cog, "__file__", None) or "").startswith(_SHIMS):
        return found
    return f"{found}+tidegate"

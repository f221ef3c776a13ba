"""Sees a module come in, and changes it before anybody else has a name out of it."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Adopt = Callable[[ModuleType], None]


def when_imported(name: str, adopt: "Adopt") -> None:
    """Call `adopt` with the module, right after its own code has run."""
    sys.meta_path.insert(0, _Finder(name, adopt))


class _Finder:
    """Lets the others find the module, and wraps what loads it."""

    def __init__(self, name: str, adopt: "Adopt") -> None:
        self._name = name
        self._adopt = adopt

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Answer for the one name only."""
        if name != self._name:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    wrapped: Any = _Loader(spec.loader, self._adopt)
                    spec.loader = wrapped
                return spec
        return None


class _Loader:
    """A loader that shows the module to `adopt` when it is done."""

    def __init__(self, loader: "Any", adopt: "Adopt") -> None:
        self._loader = loader
        self._adopt = adopt

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        """Make it as it would have been made."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: "ModuleType") -> None:
        """Run its code, then ours."""
        self._loader.exec_module(module)
        self._adopt(module)

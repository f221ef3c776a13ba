"""Patches a module right after its import, before other code can use names from it."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Patch = Callable[[ModuleType], None]


def patch_on_import(name: str, patch: "Patch") -> None:
    """Call `patch` with the module right after its own code has run."""
    sys.meta_path.insert(0, _PatchingFinder(name, patch))


class _PatchingFinder:
    """Finds the module with the other finders and wraps its loader."""

    def __init__(self, name: str, patch: "Patch") -> None:
        self._name = name
        self._patch = patch

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Find only the one module."""
        if name != self._name:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    wrapped: Any = _PatchingLoader(spec.loader, self._patch)
                    spec.loader = wrapped
                return spec
        return None


class _PatchingLoader:
    """A loader that calls `patch` after loading the module."""

    def __init__(self, loader: "Any", patch: "Patch") -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        """Create the module with the wrapped loader."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: "ModuleType") -> None:
        """Run the module's code, then `patch`."""
        self._loader.exec_module(module)
        self._patch(module)

"""tidegate: the Python side of the model server.

Importing this package is cheap and changes nothing; the child process starts in `tidegate.child`. Model code
uses `tidegate.batched` and `tidegate.item`.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidegate.batching import batched, item

__all__ = ["__version__", "batched", "item"]


def __getattr__(name: str) -> object:
    """Load the functions for model code when they are first used."""
    if name in ("batched", "item"):
        from tidegate import batching

        return getattr(batching, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

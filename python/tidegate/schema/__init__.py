"""The schema of a Cog model, read from its source without importing it.

Cog makes this document when it builds an image; tidegate makes it at start, so the
builder has to be quick and must not run user code: weights may take minutes to load,
and `/openapi.json` must not wait for them. Only the standard library's `ast` is used.

Reading order: `target` finds the function, `names` and `annotations` say what its types
mean, `inputs` and `outputs` describe them, `document` frames the result.
"""

from __future__ import annotations

from .build import ModelSchema, build
from .errors import SchemaError
from .inputs import Parameter

__all__ = ["ModelSchema", "Parameter", "SchemaError", "build"]

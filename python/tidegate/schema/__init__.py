"""Builds the schema of a Cog model from its source, without importing it.

Cog builds this document together with an image; tidegate builds it at start. The builder must be fast and
must not run user code: weights may take minutes to load, and `/openapi.json` must not wait for them. It
uses only the standard library's `ast`.

Reading order: `function` finds the function, `symbols` and `annotations` resolve its types, `inputs` and
`outputs` describe them, `document` assembles the OpenAPI document.
"""

from __future__ import annotations

from .build import ModelSchema, build
from .errors import SchemaError
from .inputs import Parameter

__all__ = ["ModelSchema", "Parameter", "SchemaError", "build"]

"""Fixtures of the tests of the Replicate face: servers with a place to write down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients import Place


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    return {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def place(fleet: Any, data: dict[str, str]) -> Callable[..., Place]:
    """Starts a server of its own; again with the same folder when it is called again."""

    def start(
        model: str, *flags: str, env: dict[str, str] | None = None, token: str = "none", **options: Any
    ) -> Place:
        server = fleet.fresh("tidegate", model, flags=flags, env=data | (env or {}), **options)
        return Place(server, model, token)

    return start

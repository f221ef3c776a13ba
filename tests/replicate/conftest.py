"""Fixtures of the Replicate tests: servers with a data folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients import ServedModel


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    return {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def serve_model(server_pool: Any, data: dict[str, str]) -> Callable[..., ServedModel]:
    """Start a server for this test only; all servers of one test use the same data folder."""

    def start(
        model: str, *flags: str, env: dict[str, str] | None = None, token: str = "none", **options: Any
    ) -> ServedModel:
        server = server_pool.fresh("tidegate", model, flags=flags, env=data | (env or {}), **options)
        return ServedModel(server, model, token)

    return start

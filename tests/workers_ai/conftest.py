"""Fixtures of the Workers AI tests: servers and the official client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cloudflare import Cloudflare
from server_process import Server


@pytest.fixture
def serve(server_pool: Any) -> Callable[[str], Server]:
    """A server of this model, shared by all tests."""
    return lambda model: server_pool.shared("tidegate", model)


@pytest.fixture
def serve_alone(server_pool: Any) -> Callable[..., Server]:
    """A server of this model for this test only."""
    return lambda model, *flags, **options: server_pool.fresh("tidegate", model, flags=flags, **options)


@pytest.fixture
def cloudflare_client() -> Callable[..., Cloudflare]:
    """The official client of a server. It does not repeat requests unless the test wants it."""

    def connect(server: Server, **options: Any) -> Cloudflare:
        settings = {"api_token": "none", "max_retries": 0, "timeout": 30} | options
        return Cloudflare(base_url=f"{server.url}/client/v4", **settings)

    return connect


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that holds the model `chat_words` until it exists."""
    return tmp_path / "gate"

"""Fixtures of the Workers AI tests: the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cloudflare import Cloudflare
from server_process import Server


@pytest.fixture
def cloudflare_client() -> Callable[..., Cloudflare]:
    """The official client of a server. It does not repeat requests unless the test wants it."""

    def connect(server: Server, **options: Any) -> Cloudflare:
        settings = {"api_token": "none", "max_retries": 0, "timeout": 30} | options
        return Cloudflare(base_url=f"{server.url}/client/v4", **settings)

    return connect

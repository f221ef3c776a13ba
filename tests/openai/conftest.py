"""Fixtures of the OpenAI tests: the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from openai import OpenAI
from server_process import Server


@pytest.fixture
def openai_client() -> Callable[..., OpenAI]:
    """The official client of a server. It does not repeat requests unless the test wants it."""

    def connect(server: Server, **options: Any) -> OpenAI:
        settings = {"api_key": "none", "max_retries": 0, "timeout": 30} | options
        return OpenAI(base_url=f"{server.url}/v1", **settings)

    return connect

"""Fixtures of the catalogue of faults: tidegate alone, seen by a stranger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import servers
from servers import Server
from unhurt import Unhurt


@pytest.fixture
def shared(fleet) -> Callable[[str], Server]:
    return lambda model: fleet.shared("tidegate", model)


@pytest.fixture
def fresh(fleet) -> Callable[..., Server]:
    return lambda model, *flags, **options: fleet.fresh("tidegate", model, flags=flags, **options)


@pytest.fixture
def unhurt(shared, receiver, tmp_path: Path) -> Unhurt:
    """The shared server of the model `journal`, which a bad input must leave as it was."""
    return Unhurt(shared("journal"), receiver, tmp_path)


@pytest.fixture
def guarded(fresh, monkeypatch) -> Callable[..., Server]:
    """A server of this test alone that may call public addresses only, as it is by default."""
    with_private = servers.tidegate_env

    def without_private(*arguments: Any, **options: str) -> dict[str, str]:
        env = with_private(*arguments, **options)
        del env["TIDEGATE_ALLOW_PRIVATE_NETWORKS"]
        return env

    monkeypatch.setattr(servers, "tidegate_env", without_private)
    return fresh

"""Fixtures of the tests of the router: stub backends and routers, all stopped at the end of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from router_process import Router, start_router
from stub_upstream import StubUpstream


@pytest.fixture
def upstreams() -> Iterator[Callable[..., StubUpstream]]:
    """Start stub backends."""
    started: list[StubUpstream] = []

    def start(*arguments: Any, **options: Any) -> StubUpstream:
        started.append(StubUpstream(*arguments, **options))
        return started[-1]

    yield start
    for upstream in started:
        upstream.close()
    assert [problem for upstream in started for problem in upstream.unexpected] == []


@pytest.fixture
def upstream(upstreams: Callable[..., StubUpstream]) -> StubUpstream:
    return upstreams()


@pytest.fixture
def router(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Router]]:
    """Start routers. They are killed at the end; `test_router_drain.py` tests how they exit."""
    started: list[Router] = []

    def start(*models: dict[str, Any], **options: Any) -> Router:
        started.append(start_router(tmp_path / f"router{len(started)}", *models, **options))
        return started[-1]

    request.node.routers = started
    yield start
    for running in started:
        running.server.process.kill()
        running.server.process.wait(5)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.failed:
        for running in getattr(item, "routers", []):
            report.sections.append(("log of the router", running.server.log()[-6000:]))
    return report

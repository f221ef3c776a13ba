"""Tests of the platform on a cluster: their calls go to two API processes in turn, and Runpod's own
workers and clients are connected to either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint_cluster import EndpointCluster, Postgres, running_cluster
from test_platform_batch import test_a_draft_is_built_changed_and_run
from test_platform_clients import (
    test_a_failed_job_can_be_retried_under_its_id,
    test_a_waiting_client_gets_the_final_state,
    test_both_clients_stream_every_part_once,
    test_the_asyncio_client_runs_and_fetches,
    test_the_clients_cancel_and_purge,
    test_the_python_client_runs_and_fetches,
    test_webhooks_have_the_format_of_runpods_cloud,
)
from test_platform_npm import test_a_cancel_stops_the_worker, test_run_and_status_and_status_sync
from test_platform_workers import (
    test_parts_of_a_generator_are_read_once_and_in_order,
    test_the_first_result_counts_and_late_reports_are_ignored,
)

__all__ = [
    "test_a_cancel_stops_the_worker",
    "test_a_draft_is_built_changed_and_run",
    "test_a_failed_job_can_be_retried_under_its_id",
    "test_a_waiting_client_gets_the_final_state",
    "test_both_clients_stream_every_part_once",
    "test_parts_of_a_generator_are_read_once_and_in_order",
    "test_run_and_status_and_status_sync",
    "test_the_asyncio_client_runs_and_fetches",
    "test_the_clients_cancel_and_purge",
    "test_the_first_result_counts_and_late_reports_are_ignored",
    "test_the_python_client_runs_and_fetches",
    "test_webhooks_have_the_format_of_runpods_cloud",
]


@pytest.fixture
def platform(postgres: Postgres, tmp_path: Path) -> Iterator[EndpointCluster]:
    """A cluster with the endpoint `echo`, for this test only."""
    with running_cluster(postgres, tmp_path) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def served(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndpointCluster]:
    """One cluster with a worker for four jobs at once."""
    with running_cluster(postgres, tmp_path_factory.mktemp("served")) as cluster:
        cluster.worker("coroutine", 4)
        yield cluster

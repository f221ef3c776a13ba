"""`tidegate api DIR`: models are registered before a director runs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import requests
from cluster import Cluster
from environment import copy_model, free_port, tidegate_bin, tidegate_env
from waiting import wait_until


def test_jobs_are_validated_and_wait_before_the_first_director_starts(
    new_cluster: Cluster, tmp_path: Path
) -> None:
    folder = copy_model("echo", tmp_path / "models")
    first, second = new_cluster.start_api(str(folder)), new_cluster.start_api()
    version = new_cluster.wait_for_model("local/echo")
    assert version["openapi_schema"]["components"]["schemas"]["Input"]["properties"]["text"]
    predictions = f"{second.url}/v1/models/local/echo/predictions"
    refused = requests.post(predictions, json={"input": {"limit": 99}}, timeout=20)
    assert refused.status_code == 422 and "limit" in refused.text
    created = requests.post(predictions, json={"input": {"text": "later"}}, timeout=20).json()
    assert created["status"] == "starting"
    new_cluster.start_director("echo")
    url = f"{first.url}/v1/predictions/{created['id']}"
    ended = wait_until(
        lambda: (job := requests.get(url, timeout=20).json())["status"] == "succeeded" and job,
        f"the prediction: {new_cluster.logs()}",
        45,
    )
    assert (ended["output"], ended["version"]) == ("later", version["id"])


def test_a_folder_without_a_model_is_an_error(new_cluster: Cluster, tmp_path: Path) -> None:
    command = [str(tidegate_bin()), "api", str(tmp_path / "nothing"), "--port", str(free_port())]
    env = tidegate_env(TIDEGATE_DATA_DIR=None, **new_cluster.env)
    refused = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 64, refused.stderr
    assert "nothing" in refused.stderr

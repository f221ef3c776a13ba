"""A data folder of the previous version: its jobs, files and webhooks are there, and what waited runs."""

import shutil
import sqlite3

import pytest
from environment import ROOT
from waiting import wait_until

FIXTURE = ROOT / "crates/store/tests/data/previous_version"
#: The address of the webhooks in the fixture.
OLD_RECEIVER = "http://127.0.0.1:9"
ANN = {"Authorization": "Bearer a"}
DEPLOYED, TRAINING = "76767rsnsmc4f029jbpxkpkne6", "4fy92xv5s1673vqvj8qdsxxqbe"
TUNED, WAITING = "493qwsggpvb27m73qbnbn5k0wf", "3es9zys1y12tyb0vqhasqawda9"
FILE = "32t7sazdg1ra3mtjvewtzrar0a"
#: Longer than anyone runs this test after the fixture was made.
FOR_EVER = "876000h"


@pytest.fixture
def upgraded(tmp_path, start_server, receiver):
    """A server on a copy of the old data folder; its webhooks go to `receiver`."""
    data = tmp_path / "data"
    shutil.copytree(FIXTURE / "files", data / "files")
    dump = (FIXTURE / "tidegate.sql").read_text()
    base = receiver.path()
    connection = sqlite3.connect(data / "tidegate.db")
    connection.executescript(dump.replace(OLD_RECEIVER, receiver.url + base))
    connection.close()
    server = start_server(
        "upgrade",
        *("--owner", "ann", "--data-dir", str(data)),
        *("--keep-for", FOR_EVER, "--webhook-retry-for", FOR_EVER),
        env={"TIDEGATE_API_TOKENS": "a:ann"},
    )
    return server, lambda name: receiver.wait_terminal(f"{base}/{name}")


def get(server, path):
    reply = server.get(path, headers=ANN)
    assert reply.status == 200, str(reply)
    return reply.json


def ended(server, path):
    def job():
        seen = get(server, path)
        return seen if seen["status"] in ("succeeded", "failed", "canceled") else None

    return wait_until(job, f"the end of {path}")


def test_a_data_folder_of_the_previous_version(upgraded):
    server, webhook = upgraded

    # Jobs that had ended, over both APIs.
    for id, status, output in [
        ("cog-succeeded", "succeeded", "echo one"),
        ("cog-failed", "failed", None),
        ("cog-canceled", "canceled", None),
    ]:
        assert (seen := get(server, f"/predictions/{id}"))["status"] == status
        assert seen.get("output") == output
        assert get(server, f"/v1/predictions/{id}")["status"] == status
    deployed = get(server, f"/v1/predictions/{DEPLOYED}")
    assert (deployed["output"], deployed["deployment"]) == ("echo five", "ann/app")
    assert deployed["deployment_release"] == 2
    assert get(server, f"/v1/predictions/{TUNED}")["output"] == "salve six"
    assert len(get(server, "/v1/predictions")["results"]) == 8
    assert [job["id"] for job in get(server, "/v1/trainings")["results"]] == [TRAINING]

    # The job that was running is run again, and the one that waited runs after it.
    assert ended(server, "/predictions/cog-running")["output"] == "echo seven"
    assert ended(server, f"/v1/predictions/{WAITING}")["output"] == "echo eight"
    assert webhook("waiting")["output"] == "echo eight"
    assert webhook("unavailable")["id"] == "cog-pending-webhook"

    # Documents and files.
    release = get(server, "/v1/deployments/ann/app")["current_release"]
    assert (release["number"], release["configuration"]["max_instances"]) == (2, 2)
    file = get(server, f"/v1/files/{FILE}")
    assert (file["name"], file["metadata"]) == ("numbers.txt", {"set": 1})
    path = file["urls"]["download"].removeprefix(server.url)
    assert server.get(path).body == b"1\n2\n3\n"

    # The trained version runs with its weights.
    created = server.post(
        "/v1/models/ann/tuned/predictions",
        {"input": {"text": "nine"}},
        headers=ANN | {"Prefer": "wait=20"},
    )
    assert created.json["output"] == "salve nine", str(created)

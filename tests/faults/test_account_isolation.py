"""Rows F1 to F5 of docs/reliability.md: accounts that must not see each other."""

import itertools
import math
import os
import statistics
import time
from pathlib import Path

import pytest
import requests
from baseline import Baseline, assert_refused, read_journal
from http_client import Reply, wait_for_end
from processes import descendants
from raw_http import exchange, json_request
from sse import EventStream
from waiting import wait_until

ALICE, BOB = "alice-0123456789abcdef", "bob-fedcba9876543210"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def server(start_server):
    return start_server("journal", env=TOKENS)


WRONG = {
    "nothing": None,
    "an empty header": "",
    "only the scheme": "Bearer",
    "only the scheme and a space": "Bearer ",
    "no scheme": ALICE,
    "another scheme": "Basic YWxpY2U6YWxpY2U=",
    "the account's name": "Bearer alice",
    "an unknown token": "Bearer " + "x" * 24,
    "a letter less": f"Bearer {ALICE[:-1]}",
    "a letter more": f"Bearer {ALICE}x",
    "in capitals": f"Bearer {ALICE.upper()}",
    "the token and the account": f"Bearer {ALICE}:alice",
    "two tokens": f"Bearer {ALICE}, Bearer {BOB}",
    "two tokens in one": f"Bearer {ALICE} {BOB}",
    "in quotes": f'Bearer "{ALICE}"',
    "null": "Bearer null",
    "60 KiB": "Bearer " + "x" * 60_000,
    "letters that are none": "Bearer \xff\xfe\xfd",
    "a hash": "Bearer sha256:" + "0" * 64,
}


def test_a_wrong_token_gets_401_and_runs_nothing(server):
    answers = set()
    for name, value in WRONG.items():
        headers = {} if value is None else {"authorization": value}
        reply = exchange(server, json_request({"input": {"nonce": "never"}}, **headers))
        assert reply.status in (400, 401), (name, str(reply))
        assert_refused(reply)
        assert reply.headers["www-authenticate"], name
        assert ALICE not in reply.body.decode()
        answers.add(reply.body)
    assert len(answers) <= 2, "responses distinguish only missing and unknown tokens"
    assert read_journal(server) == []
    assert server.get("/health-check").status == 200


def test_a_token_outside_the_authorization_header_is_ignored(server):
    for target in (f"/predictions?token={ALICE}", f"/predictions?access_token={ALICE}"):
        assert exchange(server, json_request({"input": {}}, target=target)).status == 401
    assert (
        exchange(server, json_request({"input": {}, "token": ALICE}, cookie=f"token={ALICE}")).status == 401
    )
    assert (
        exchange(
            server, json_request({"input": {}}, x_api_key=ALICE, proxy_authorization=f"Bearer {ALICE}")
        ).status
        == 401
    )
    assert read_journal(server) == []


def test_a_missing_token_is_refused_before_the_body_is_read(server):
    """A client without a valid token cannot make the server buffer 90 MiB."""
    assert exchange(server, json_request(b"", length=90 * 2**20), timeout=5).status == 401


def test_an_unknown_id_and_another_accounts_id_get_the_same_response(server):
    server.predict({"nonce": "hers"}, id="hers", headers=bearer(ALICE))

    def look(id: str) -> Reply:
        return exchange(
            server, json_request(b"", method="GET", target=f"/predictions/{id}", **lower(bearer(BOB)))
        )

    hers, none = look("hers"), look("none")
    assert (hers.status, none.status) == (404, 404)
    assert hers.body.replace(b"hers", b"none") == none.body
    assert sorted(hers.headers.keys()) == sorted(none.headers.keys())
    times: dict[str, list[float]] = {"hers": [], "none": []}
    for _ in range(200):
        for id, spent in times.items():
            began = time.perf_counter()
            look(id)
            spent.append(time.perf_counter() - began)
    ratio = statistics.median(times["hers"]) / statistics.median(times["none"])
    assert 0.5 < ratio < 2, ratio


def lower(headers):
    return {name.lower(): value for name, value in headers.items()}


def test_other_accounts_cannot_read_cancel_or_replay_a_job(server, gate):
    server.start({"nonce": "hers", "gate": str(gate)}, id="hers", headers=bearer(ALICE))
    wait_until(lambda: "begin hers" in read_journal(server), "it to run")
    for _ in range(3):
        assert server.get("/predictions/hers", headers=bearer(BOB)).status == 404
        assert server.post("/predictions/hers/cancel", headers=bearer(BOB)).status == 404
        assert server.get("/trainings/hers", headers=bearer(BOB)).status == 404
        assert server.post("/trainings/hers/cancel", headers=bearer(BOB)).status == 404
    body = {"input": {"nonce": "his"}}
    his = server.put("/predictions/hers", body, headers=bearer(BOB))
    assert his.status == 404 or his.json.get("output") == "his", "his own job, or none; never hers"
    assert "hers" not in str(his.json.get("output"))
    gate.open()
    final = wait_for_end(server, "hers", headers=bearer(ALICE))
    assert (final["status"], final["output"]) == ("succeeded", "hers")
    assert read_journal(server).count("begin hers") == 1


def test_other_accounts_cannot_follow_a_stream(start_server, gate):
    server = start_server("many", "--workers", "2", env=TOKENS)

    def follow(token: str, count: int) -> EventStream:
        answer = requests.put(
            f"{server.url}/predictions/stream",
            json={"input": {"count": count, "gate": str(gate), "hold_at": 1}},
            headers=bearer(token) | {"Accept": "text/event-stream"},
            stream=True,
            timeout=15,
        )
        return EventStream(answer)

    hers = follow(ALICE, 3)
    hers.next("output")
    his = follow(BOB, 2)
    if his.status == 200:
        his.next("output")
        his.close()  # the end of his own stream must not be the end of hers
    else:
        assert his.status == 404
    gate.open()
    assert len(hers.next("completed").data["output"]) == 3


def test_deliveries_of_another_account_are_not_shown(start_server, receiver):
    server, path = start_server("journal", env=TOKENS), receiver.path()
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    server.predict({"nonce": "hers"}, id="hers", headers=bearer(ALICE), **hook)
    receiver.wait_terminal(path)
    for target in ("/admin/deliveries", "/admin/deliveries?job=hers"):
        reply = server.get(target, headers=bearer(BOB))
        assert reply.status in (200, 403, 404)
        assert path not in reply.body.decode() and receiver.url not in reply.body.decode()
        assert server.get(target).status == 401


def test_a_thousand_ids_share_no_pattern(shared_server):
    """96 random bits or more: no fixed start or end, no counter, no clock."""
    server = shared_server("journal")
    ids = []
    for _ in range(1000):
        reply = exchange(server, json_request({"input": {}}))
        ids.append(reply.json["id"])
    assert len(set(ids)) == 1000
    assert {len(id) for id in ids} == {len(ids[0])}
    # A place with k equally likely letters shows about all of them in 1000 draws; each counts its bits.
    letters = [{id[place] for id in ids} for place in range(len(ids[0]))]
    bits = sum(math.log2(len(seen)) for seen in letters)
    assert bits >= 96, [len(seen) for seen in letters]
    assert min(len(seen) for seen in letters[1:]) > 8, "a place that hardly changes"
    # Consecutive ids are no more similar than any other two.
    near = [same_places(a, b) for a, b in itertools.pairwise(ids)]
    far = [same_places(a, b) for a, b in zip(ids[:500], ids[500:], strict=True)]
    assert abs(statistics.mean(near) - statistics.mean(far)) < 0.5
    assert ids != sorted(ids)


def same_places(one: str, other: str) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def test_a_flood_of_one_account_does_not_delay_another(start_server, gate):
    """Between two starts of one that waits, others start at most 2(k-1)s + s times: k accounts, s slots."""
    server, slots = start_server("journal", "--queue", "300", env=TOKENS), 2
    for number in range(100):
        server.start({"nonce": f"alice{number}", "gate": str(gate)}, headers=bearer(ALICE))
    for number in range(10):
        server.start({"nonce": f"bob{number}", "gate": str(gate)}, id=f"bob{number}", headers=bearer(BOB))
    gate.open()
    for number in range(10):
        assert wait_for_end(server, f"bob{number}", headers=bearer(BOB))["status"] == "succeeded"
    starts = [line.split()[1] for line in read_journal(server) if line.startswith("begin")][slots:]
    of_bob = [place for place, nonce in enumerate(starts) if nonce.startswith("bob")]
    between = [later - earlier - 1 for earlier, later in itertools.pairwise([-1, *of_bob])]
    assert max(between) <= 2 * slots + slots, starts[:40]


@pytest.fixture
def careless(start_server, tmp_path):
    """A server whose starter has no umask: whatever is private is so on purpose."""
    scratch = tmp_path / "careless"
    scratch.mkdir()
    scratch.chmod(0o1777)
    before = os.umask(0)
    try:
        server = start_server("tempfiles", env={"TMPDIR": str(scratch)})
    finally:
        os.umask(before)
    return server, scratch


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


def exposed(folder: Path) -> list[Path]:
    """The files that other users of this machine could open."""
    found = []
    for path in folder.iterdir():
        if path.is_symlink() or path.stat().st_mode & 0o077 == 0:
            continue
        found.append(path)
    return found


@pytest.mark.parametrize(
    "input", [{"path": "data:text/plain,x"}, {"big": "x" * 8 * 2**20}], ids=["file", "large"]
)
def test_files_of_a_job_are_private_and_removed_after_it(careless, gate, input):
    server, scratch = careless
    server.start(input | {"gate": str(gate)}, id="files")
    server.wait_health("BUSY")
    wait_until(lambda: files_below(scratch) or "big" in input, "the file to be there")
    assert exposed(scratch) == []
    gate.open()
    final = wait_for_end(server, "files")
    assert final["status"] == "succeeded", final
    if "path" in input:
        *_, top = final["output"]["path"]
        assert top[1] & 0o077 == 0, "the folder is private"
        file = final["output"]["path"][0]
        assert file[1] & 0o077 == 0, "the file is private"
    assert files_below(scratch) == []


@pytest.mark.parametrize("end", ["fails", "is canceled", "loses its process"])
def test_files_are_removed_however_the_job_ends(careless, gate, end):
    server, scratch = careless
    input = {"path": "data:text/plain,x", "gate": str(gate), "fail": "on purpose"}
    server.start(input, id="files")
    wait_until(lambda: files_below(scratch), "the file to be there")
    if end == "fails":
        gate.open()
    elif end == "is canceled":
        assert server.cancel("files").status == 200
    else:
        os.kill(descendants(server.process.pid)[0], 9)
    wait_for_end(server, "files")
    wait_until(lambda: files_below(scratch) == [], "the files to be gone")


def test_a_server_removes_its_files_at_exit(careless):
    server, scratch = careless
    assert server.predict({"path": "data:text/plain,x"}).json["status"] == "succeeded"
    server.stop()
    assert list(scratch.iterdir()) == []


def test_jobs_of_two_accounts_use_separate_folders(start_server, tmp_path):
    server = start_server("tempfiles", env=TOKENS)
    folders = set()
    for token in (ALICE, BOB, ALICE):
        output = server.predict({"path": "data:text/plain,x"}, headers=bearer(token)).json["output"]
        folders.add(os.path.dirname(output["path"][0][0]))
    assert len(folders) == 3, "not even two jobs of one account share a folder"


def test_refused_requests_lose_no_slot(start_server, receiver, tmp_path):
    """A thousand refused calls later everything is as before."""
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    for _ in range(1000):
        reply = exchange(server, json_request(b"", method="GET", target="/predictions/not-yours"))
        assert reply.status == 404
    proof.check()

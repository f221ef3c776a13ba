"""Rows A15 and A16 of docs/reliability.md: no file descriptors, no disk space."""

import os
import resource
import signal
import socket

from baseline import Baseline, assert_error_body
from namespaces import run_in_namespaces
from processes import descendants, open_descriptors
from raw_http import RawConnection, json_request
from waiting import wait_until


def limit(server, count):
    """Let the living server have `count` descriptors and no more."""
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (count, hard))


def stand_at_the_door(server, count):
    """Connections that are opened and not used; the last ones are never accepted."""
    crowd = [socket.socket() for _ in range(count)]
    for one in crowd:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", server.port))
    return crowd


def test_webhooks_of_accepted_jobs_arrive_after_descriptors_ran_out(start_server, receiver, tmp_path):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    before, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    with RawConnection(server) as caller:
        assert caller.send(json_request({"input": {"nonce": "warm"}})).reply().status == 200
        limit(server, open_descriptors(server.process.pid) + 6)
        crowd = stand_at_the_door(server, 100)
        accepted = []
        for number in range(30):
            path = receiver.path()
            body = {"input": {"nonce": f"{number}"}, "webhook": receiver.url + path}
            reply = caller.send(json_request(body, prefer="respond-async")).reply()
            assert reply.status in (202, 409, 429, 503), str(reply)
            if reply.status == 202:
                accepted.append((path, f"{number}"))
        assert accepted
        for one in crowd:
            one.close()
        limit(server, before)
        for path, nonce in accepted:
            assert receiver.wait_terminal(path)["output"] == nonce
    wait_until(lambda: server.health()["status"] == "READY", "the server to accept again")
    proof.assert_slots()


def test_many_connections_leave_descriptors_for_webhooks(start_server, receiver):
    """Delivered while the connections are open: some descriptors are reserved for internal work."""
    server, path = start_server("journal"), receiver.path()
    with RawConnection(server) as caller:
        assert caller.send(json_request({"input": {"nonce": "warm"}})).reply().status == 200
        limit(server, open_descriptors(server.process.pid) + 64)
        crowd = stand_at_the_door(server, 200)
        body = {"input": {"nonce": "told"}, "webhook": receiver.url + path}
        assert caller.send(json_request(body, prefer="respond-async")).reply().status == 202
        assert receiver.wait_terminal(path)["output"] == "told"
        for one in crowd:
            one.close()
    assert server.sibling().predict({"nonce": "after"}).json["output"] == "after"


def test_health_responds_on_an_open_connection_without_descriptors(start_server):
    server = start_server("journal")
    with RawConnection(server) as caller:
        ask = json_request(b"", method="GET", target="/health-check")
        assert caller.send(ask).reply().status == 200
        limit(server, open_descriptors(server.process.pid))
        assert caller.send(ask).reply(timeout=2).json["status"] == "READY"
        assert caller.send(json_request({"input": {"nonce": "tight"}})).reply().json["output"] == "tight"


def test_a_full_disk_refuses_jobs_that_need_files(tmp_path):
    facts = run_in_namespaces("full_temp_dir.py", tmp_path)
    assert facts["before"][0] == 200
    for word in [*(f"full{number}" for number in range(10)), "full-large"]:
        status, content_type, body = facts[word]
        assert (status, content_type) == (507, "application/json"), facts[word]
        assert_error_body(body)
    assert [line for line in facts["journal"] if "full" in line and "no-file" not in line] == []
    assert facts["full-no-file"][2]["output"] == "full-no-file", "what needs no file is served"
    assert facts["health"] == "READY"
    assert facts["after"][2]["output"] == "after"
    assert facts["after-large"][2]["output"] == "after-large"
    assert facts["left"] == []


def test_a_child_that_dies_without_descriptors_is_replaced_later(start_server, receiver, tmp_path):
    server = start_server("journal")
    proof = Baseline(server, receiver, tmp_path)
    before, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    ask = json_request(b"", method="GET", target="/health-check")
    with RawConnection(server) as caller:
        assert caller.send(ask).reply().status == 200
        limit(server, open_descriptors(server.process.pid) - 6)  # what the dead one leaves must not be enough
        os.kill(descendants(server.process.pid)[0], signal.SIGKILL)
        wait_until(lambda: "failed to start child" in server.log(), "an attempt that failed")
        assert caller.send(ask).reply(timeout=2).json["status"] == "STARTING"
        limit(server, before)
    server.wait_health("READY", timeout=10)
    proof.assert_slots()


def test_files_that_do_not_fit_into_the_data_folder_are_refused(tmp_path):
    found = run_in_namespaces("full_data_dir.py", tmp_path, timeout=100)
    for word in ("large", "unannounced"):
        status, content_type, detail = found[word]
        assert (status, content_type) == (507, "application/problem+json"), found
        assert "space" in detail, detail
    status, error, given = found["large-output"]
    assert (status, given) == ("failed", False), found
    assert "no space left" in error
    assert found["left"] == []
    assert found["small"][0] == 201
    assert found["small-output"] == ["succeeded", None, True]
    assert found["health"] == "READY"

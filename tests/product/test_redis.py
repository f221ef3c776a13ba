"""`serve --redis`: the queue is in Redis, and the jobs are in the store."""

import os
import re
import signal

import pytest
from certificates import make_signed_certificate
from environment import free_port
from redis_server import redis_server
from waiting import wait_until

PREFER_ASYNC = {"Prefer": "respond-async"}


@pytest.fixture
def redis(tmp_path):
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def flags(redis, tmp_path):
    return ["--redis", redis.url, "--data-dir", str(tmp_path / "data"), "--reconcile-interval", "100ms"]


def create(server, **input):
    body = {"version": "local/echo", "input": input}
    reply = server.post("/v1/predictions", body, headers=PREFER_ASYNC)
    assert reply.status == 201, str(reply)
    return reply.json["id"]


def status(server, id):
    return server.get(f"/v1/predictions/{id}").json["status"]


def wait_for(server, id, expected):
    wait_until(lambda: status(server, id) == expected, f"{id} to be {expected}")


def hold(server, gate):
    """Start a prediction that runs until the gate is opened."""
    id = create(server, text="held", gate=str(gate))
    wait_for(server, id, "processing")
    return id


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()


def test_waiting_jobs_are_messages_in_shards_of_one_queue(start_server, redis, flags, gate):
    server = start_server("echo", *flags)
    held = hold(server, gate)
    waiting = [create(server, text=str(number)) for number in range(5)]
    wait_until(lambda: redis.messages() == 5, "the messages")
    [queue] = redis.queues()
    assert re.fullmatch(r"input:prediction:vp-[0-9a-f]{32}", queue)
    assert all(re.fullmatch(re.escape(queue) + r":s[0-7]", stream) for stream in redis.streams())
    gate.open()
    for id in [held, *waiting]:
        wait_for(server, id, "succeeded")
    wait_until(lambda: redis.messages() == 0, "the acknowledgements")
    started = [server.get(f"/v1/predictions/{id}").json["started_at"] for id in waiting]
    assert started == sorted(started)


def test_a_canceled_job_leaves_the_queue(start_server, redis, flags, gate):
    server = start_server("echo", *flags)
    held = hold(server, gate)
    canceled, other = create(server, text="a"), create(server, text="b")
    wait_until(lambda: redis.messages() == 2, "the messages")
    assert server.post(f"/v1/predictions/{canceled}/cancel").status == 200
    wait_for(server, canceled, "canceled")
    wait_until(lambda: redis.messages() == 1, "the message of the canceled job to be gone")
    gate.open()
    for id in [held, other]:
        wait_for(server, id, "succeeded")


def test_a_waiting_job_is_aborted_at_its_deadline(start_server, redis, flags, gate):
    server = start_server("echo", *flags, "--deadline-interval", "50ms", "--collect-interval", "50ms")
    hold(server, gate)
    body = {"version": "local/echo", "input": {"text": "late"}}
    headers = PREFER_ASYNC | {"Cancel-After": "5s"}
    late = server.post("/v1/predictions", body, headers=headers).json["id"]
    wait_until(lambda: redis.messages() == 1, "the message")
    wait_for(server, late, "aborted")
    wait_until(lambda: redis.messages() == 0, "the message to be collected")
    gate.open()


@pytest.mark.parametrize("empty", [False, True], ids=["with-messages", "empty"])
def test_jobs_survive_a_kill_of_the_server(start_server, redis, flags, gate, empty):
    server = start_server("echo", *flags)
    held = hold(server, gate)
    waiting = [create(server, text=str(number)) for number in range(3)]
    wait_until(lambda: redis.messages() == 3, "the messages")
    kill(server)
    if empty:
        redis.run("FLUSHALL")
    gate.open()
    server = start_server("echo", *flags)
    for id in [held, *waiting]:
        wait_for(server, id, "succeeded")
    wait_until(lambda: redis.messages() == 0, "the acknowledgements")


def test_a_restart_does_not_duplicate_messages(start_server, redis, flags, gates):
    server = start_server("echo", *flags)
    hold(server, gates[0])
    waiting = [create(server, text=str(number), gate=str(gates[1])) for number in range(3)]
    wait_until(lambda: redis.messages() == 3, "the messages")
    kill(server)
    server = start_server("echo", *flags, until=("BUSY",))
    # The job that ran had found a free slot, so it had no message.
    assert redis.messages() == 4
    gates[0].open()
    gates[1].open()
    for id in waiting:
        wait_for(server, id, "succeeded")
    wait_until(lambda: redis.messages() == 0, "the acknowledgements")


def test_jobs_survive_the_loss_of_the_data_in_redis(start_server, redis, flags, gate):
    server = start_server("echo", *flags)
    held = hold(server, gate)
    waiting = [create(server, text=str(number)) for number in range(3)]
    wait_until(lambda: redis.messages() == 3, "the messages")
    redis.stop()
    while_down = create(server, text="accepted while Redis is down")
    redis.start()
    wait_until(lambda: redis.messages() == 4, "the messages to be pushed again")
    gate.open()
    for id in [held, *waiting, while_down]:
        wait_for(server, id, "succeeded")
    wait_until(lambda: redis.messages() == 0, "the acknowledgements")


def test_jobs_are_accepted_while_redis_does_not_answer(start_server, redis, flags, gate):
    server = start_server("echo", *flags)
    held = hold(server, gate)
    os.kill(redis.process.pid, signal.SIGSTOP)
    try:
        waiting = [create(server, text=str(number)) for number in range(2)]
        assert server.get("/health-check").status == 200
    finally:
        os.kill(redis.process.pid, signal.SIGCONT)
    wait_until(lambda: redis.messages() == 2, "the messages to be pushed")
    gate.open()
    for id in [held, *waiting]:
        wait_for(server, id, "succeeded")


def test_a_shutdown_leaves_waiting_jobs_to_the_next_server(start_server, redis, flags, gates):
    server = start_server("echo", *flags)
    held = hold(server, gates[0])
    waiting = create(server, text="later")
    wait_until(lambda: redis.messages() == 1, "the message")
    server.process.terminate()
    gates[0].open()
    assert server.process.wait(timeout=30) == 0
    assert redis.messages() == 1
    server = start_server("echo", *flags)
    for id in [held, waiting]:
        wait_for(server, id, "succeeded")


def test_redis_needs_a_data_directory(tidegate, redis):
    done = tidegate("serve", "examples/hello", "--port", "0", "--redis", redis.url)
    assert done.returncode == 64
    assert "--redis needs a data directory" in done.stderr


def test_mistakes_in_the_address_are_explained(tidegate, tmp_path):
    data = ["--data-dir", str(tmp_path / "data"), "--port", "0"]
    wrong = tidegate("serve", "examples/hello", *data, "--redis", "http://localhost")
    assert wrong.returncode == 64
    assert "use redis://" in wrong.stderr
    down = tidegate("serve", "examples/hello", *data, "--redis", "redis://ann:secret@127.0.0.1:1")
    assert down.returncode == 1
    assert "failed to connect to the Redis server redis://ann:***@127.0.0.1:1" in down.stderr


def test_a_server_that_evicts_keys_is_refused(tidegate, tmp_path):
    with redis_server(tmp_path / "redis", "--maxmemory-policy", "allkeys-lru") as redis:
        done = tidegate(
            "serve",
            "examples/hello",
            "--port",
            "0",
            "--data-dir",
            str(tmp_path / "data"),
            "--redis",
            redis.url,
        )
    assert done.returncode == 1
    assert "maxmemory-policy noeviction" in done.stderr


def test_two_servers_with_different_stores_do_not_share_a_database(
    tidegate, start_server, redis, flags, tmp_path
):
    start_server("echo", *flags)
    other = ["--port", "0", "--data-dir", str(tmp_path / "other"), "--redis", redis.url]
    done = tidegate("serve", "examples/hello", *other)
    assert done.returncode == 1
    assert "it holds the jobs of another store" in done.stderr


def test_a_server_with_tls_and_a_password(start_server, tidegate, tmp_path, gate):
    authority, certificate, key = make_signed_certificate(tmp_path, "redis")
    port = free_port()
    tls = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    tls += ["--tls-auth-clients", "no", "--bind", "127.0.0.1"]
    with redis_server(tmp_path / "server", *tls) as redis:
        redis.run("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")
        redis.run("ACL", "SETUSER", "default", "resetpass", ">other")
        data = ["--data-dir", str(tmp_path / "data")]
        url = f"rediss://ann:secret@localhost:{port}"
        server = start_server("echo", *data, "--redis", url, env={"SSL_CERT_FILE": str(authority)})
        held = hold(server, gate)
        waiting = create(server, text="later")
        gate.open()
        for id in [held, waiting]:
            wait_for(server, id, "succeeded")
        assert "secret" not in server.log()

        data = ["--port", "0", "--data-dir", str(tmp_path / "other")]
        unknown = tidegate("serve", "examples/hello", *data, "--redis", url)
        assert unknown.returncode == 1
        assert "SSL_CERT_FILE" in unknown.stderr

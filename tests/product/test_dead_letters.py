"""`tidegate dead-letters`: messages that no process gets any more."""

import json

import pytest
from redis_server import redis_server
from test_redis import create, hold, wait_for
from waiting import wait_until

QUEUE = "input:prediction:vp-0123456789abcdef0123456789abcdef"


@pytest.fixture
def redis(tmp_path):
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def dead_letters(tidegate, redis):
    return lambda *arguments: tidegate("dead-letters", *arguments, "--redis", redis.url)


def bury(redis, *, reason="it was handed out 3 times", queue=QUEUE, **fields):
    """Add a dead letter with this message; return its id."""
    data = [text for pair in fields.items() for text in pair]
    values = {"queue": queue, "stream": f"{queue}:s0", "message": "1-0", "reason": reason}
    values |= {"size": str(sum(map(len, data))), "data": json.dumps(data)}
    return "0." + redis.run("XADD", "meta:dead", "*", *(text for pair in values.items() for text in pair))


def bury_job(redis, job, **options):
    return bury(redis, v="1", account="", id=job, model="ann/hello", version="ab" * 32, **options)


def test_dead_letters_are_listed_with_their_reason(redis, dead_letters):
    assert dead_letters("list").stderr == "no dead letters\n"
    first = bury_job(redis, "job1")
    second = bury(redis, reason="the field `id` is missing", x="y")
    done = dead_letters("list")
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["ID", "AGE", "JOB", "MODEL", "SIZE", "QUEUE", "REASON"]
    assert rows[0].split()[0] == first and "job1" in rows[0] and "handed out 3 times" in rows[0]
    assert rows[1].split()[0] == second and "the field `id` is missing" in rows[1]
    listed = json.loads(dead_letters("list", "--json").stdout)
    assert [letter["id"] for letter in listed] == [first, second]
    assert [letter["job"] for letter in listed] == ["job1", None]
    assert listed[1]["size"] == 2 and listed[1]["data"] == '["x", "y"]'
    assert listed[0]["queue"] == QUEUE and listed[0]["at"].startswith("20")
    limited = dead_letters("list", "--limit", "1")
    assert len(limited.stdout.splitlines()) == 2 and "--limit" in limited.stderr


def test_an_unreadable_message_becomes_a_dead_letter(start_server, redis, dead_letters, gate, tmp_path):
    server = start_server("echo", "--redis", redis.url, "--data-dir", str(tmp_path / "data"))
    hold(server, gate)
    create(server, text="waits")
    wait_until(lambda: redis.messages() == 1, "the message")
    stream = redis.streams()[0]
    redis.run("XADD", stream, "*", "no", "job")
    gate.open()
    listed = wait_until(lambda: json.loads(dead_letters("list", "--json").stdout), "the dead letter")
    assert listed[0]["job"] is None and listed[0]["queue"] == stream.rpartition(":s")[0]
    assert "account" in listed[0]["reason"] or "id" in listed[0]["reason"]


def test_a_replayed_dead_letter_runs(start_server, redis, dead_letters, gate, tmp_path):
    server = start_server("echo", "--redis", redis.url, "--data-dir", str(tmp_path / "data"))
    hold(server, gate)
    id = create(server, text="replayed")
    wait_until(lambda: redis.messages() == 1, "the message")
    [stream] = [stream for stream in redis.streams() if redis.run("XLEN", stream) == "1"]
    message, *fields = redis.run("XRANGE", stream, "-", "+").splitlines()
    redis.run("XDEL", stream, message)
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    letter = bury(redis, queue=stream.rpartition(":s")[0], **pairs)
    done = dead_letters("replay", id)
    assert (done.returncode, done.stdout) == (0, f"{letter}\n"), done.stderr
    assert dead_letters("list").stdout == ""
    assert redis.messages() == 1
    gate.open()
    wait_for(server, id, "succeeded")


def test_all_readable_dead_letters_are_replayed(redis, dead_letters):
    ids = [bury_job(redis, "job1"), bury_job(redis, "job2")]
    unreadable = bury(redis, reason="no job", x="y")
    done = dead_letters("replay", "--all")
    assert done.stdout.split() == ids and "1 dead letters name no job" in done.stderr
    assert redis.messages() == 2
    done = dead_letters("replay", unreadable)
    assert done.returncode == 64 and "names no job" in done.stderr and "no job" in done.stderr
    assert f"tidegate dead-letters drop {unreadable}" in done.stderr


def test_dead_letters_are_dropped(redis, dead_letters):
    ids = [bury_job(redis, f"job{number}") for number in range(3)]
    assert dead_letters("drop", ids[1]).stdout.split() == [ids[1]]
    assert dead_letters("drop", "--all").stdout.split() == [ids[0], ids[2]]
    assert redis.run("XLEN", "meta:dead") == "0"
    assert redis.messages() == 0


def test_a_mistake_changes_nothing_and_says_how_to_fix_it(redis, dead_letters, tidegate):
    letter = bury_job(redis, "job-number-one")
    done = dead_letters("drop", letter, "job-number-two")
    assert done.returncode == 64 and "there is no dead letter `job-number-two`" in done.stderr
    assert "did you mean `job-number-one`?" in done.stderr
    assert "lists them" in dead_letters("drop", "other").stderr
    assert redis.run("XLEN", "meta:dead") == "1"
    assert dead_letters("drop").returncode == 64
    assert dead_letters("drop", letter, "--all").returncode == 64
    missing = tidegate("dead-letters", "list")
    assert missing.returncode == 64 and "--redis" in missing.stderr
    assert "similar" in tidegate("dead-letters", "lst").stderr
    redis.stop()
    down = dead_letters("list")
    assert down.returncode == 1 and "failed to connect to the Redis server" in down.stderr

"""`tidegate ps`, `logs`, `cancel` and `replay` with a running server."""

import json
import signal
import subprocess
import sys

import pytest
from environment import tidegate_bin, tidegate_env
from waiting import wait_until

ALICE = "alice-0123456789abcdef"
BOB = "bob-fedcba9876543210"
OPS = "root-00112233445566"
TOKENS = {"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:bob,{OPS}:ops:admin"}


def run(server, *arguments, token=None, **options):
    """Run a command against the server, to its end."""
    return finished(start(server, *arguments, token=token, **options))


def start(server, *arguments, token=None, url=None):
    variables = {"TIDEGATE_URL": url or server.url}
    if token:
        variables["TIDEGATE_API_TOKEN"] = token
    return subprocess.Popen(
        [str(tidegate_bin()), *map(str, arguments)],
        env=tidegate_env(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    out, err = process.communicate(timeout=30)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def accept(server, id, token=None, **input):
    headers = {"Prefer": "respond-async"} | ({"Authorization": f"Bearer {token}"} if token else {})
    reply = server.post("/predictions", {"id": id, "input": input}, headers=headers)
    assert reply.status == 202, str(reply)


def running(server, id, *arguments, **options):
    """Wait until `ps` shows the job with a model that works on it."""

    def probe():
        shown = json.loads(run(server, "ps", "--json", *arguments, **options).stdout)["jobs"]
        return [job for job in shown if job["id"] == id and job["status"] == "processing"]

    return wait_until(probe, f"{id} to run")


def tables(text):
    """The tables of `ps` by the name of their first column, each a list of rows with the head first."""
    found = [[line.split() for line in table.splitlines()] for table in text.split("\n\n") if table]
    return {table[0][0]: table for table in found}


class TestPs:
    def test_ps_lists_waiting_and_running_jobs(self, start_server, gate):
        server = start_server("echo", "--queue", "5")
        server.predict(id="over")
        accept(server, "runs", gate=str(gate))
        accept(server, "waits")
        running(server, "runs")
        head, *rows = tables(run(server, "ps").stdout)["ID"]
        assert head == ["ID", "MODEL", "STATUS", "ACCOUNT", "AGE", "WAIT", "RUN", "ERROR"]
        assert [row[:4] for row in rows] == [
            ["waits", "local/echo", "queued", "-"],
            ["runs", "local/echo", "processing", "-"],
        ]
        assert rows[0][6] == "-" and rows[1][6].endswith("s")
        every = tables(run(server, "ps", "--all").stdout)["ID"]
        assert [row[0] for row in every] == ["ID", "waits", "runs", "over"]
        assert len(tables(run(server, "ps", "--all", "--limit", "1").stdout)["ID"]) == 2
        other = run(server, "ps", "--model", "other")
        assert (other.returncode, other.stdout) == (64, "") and "no model `other`" in other.stderr
        short = tables(run(server, "ps", "--model", "echo").stdout)
        assert [row[0] for row in short["ID"]] == ["ID", "waits", "runs"] and "MODEL" in short
        of_model = json.loads(run(server, "ps", "--json", "--model", "echo").stdout)
        assert [job["id"] for job in of_model["jobs"]] == ["waits", "runs"]
        assert run(server, "ps", "-q").stdout == "waits\nruns\n"

    def test_ps_shows_the_models_with_their_processes_and_queues(self, start_server, gate):
        server = start_server("echo", "--queue", "5", "--workers", "2")
        for id in ("a", "b", "c"):
            accept(server, id, gate=str(gate))
        running(server, "b")

        def is_busy():
            found = tables(run(server, "ps").stdout)
            return found if found["MODEL"][1][2] == "2/2" else None

        shown = wait_until(is_busy, "both slots")
        assert list(shown) == ["MODEL", "PROCESS", "ID"]
        assert shown["MODEL"][1][:5] == ["local/echo", "BUSY", "2/2", "1", "2"]
        children = server.get("/admin/children").json["children"]
        expected = [[f"local/echo#{child['number']}", str(child["pid"]), "ready"] for child in children]
        assert [row[:3] for row in shown["PROCESS"][1:]] == expected
        whole = json.loads(run(server, "ps", "--json").stdout)
        assert {"models", "queues", "children", "jobs", "overview"} <= whole.keys()
        assert (whole["server"]["command"], whole["scope"]) == ("serve", "all")

    def test_ps_shows_why_a_model_is_not_available(self, start_server):
        server = start_server("setup_fails", until=("SETUP_FAILED",))
        model = tables(run(server, "ps").stdout)["MODEL"][1]
        assert model[:2] == ["local/setup_fails", "SETUP_FAILED"]
        assert " ".join(model[6:]).endswith("no weights here")

    @pytest.mark.parametrize("data_dir", ["none", "data"])
    def test_ps_shows_why_a_job_failed(self, start_server, tmp_path, data_dir):
        folder = data_dir if data_dir == "none" else str(tmp_path)
        server = start_server("echo", env={"TIDEGATE_DATA_DIR": folder})
        server.predict({"fail": "bad luck"}, id="broken")
        server.predict(id="fine")
        if data_dir != "none":
            server.stop()
            server = start_server("echo", env={"TIDEGATE_DATA_DIR": folder})
        head, *rows = run(server, "ps", "--all").stdout.split("\n\n")[-1].splitlines()
        errors = {row.split()[0]: row[head.index("ERROR") :] for row in rows}
        assert errors == {"broken": "ValueError: bad luck", "fine": "-"}

    def test_ps_of_an_idle_server_says_so_on_stderr(self, start_server):
        ended = run(start_server("echo"), "ps")
        assert (ended.returncode, list(tables(ended.stdout))) == (0, ["MODEL", "PROCESS"])
        assert "--all" in ended.stderr

    def test_an_account_sees_its_own_jobs_and_an_administrator_all(self, start_server, gate):
        server = start_server("echo", "--workers", "2", env=TOKENS)
        accept(server, "of-alice", ALICE, gate=str(gate))
        accept(server, "of-bob", BOB, gate=str(gate))
        running(server, "of-bob", token=OPS)
        own = run(server, "ps", token=ALICE)
        assert own.returncode == 0
        assert "of-alice" in own.stdout and "of-bob" not in own.stdout
        assert "your account" in own.stderr
        assert list(tables(own.stdout)) == ["MODEL", "QUEUE", "ID"], "processes are for administrators"
        assert [row[1] for row in tables(own.stdout)["QUEUE"]] == ["ACCOUNT", "alice"]
        every = run(server, "ps", token=OPS)
        assert [row[1] for row in tables(every.stdout)["QUEUE"]] == ["ACCOUNT", "alice", "bob"]
        assert "of-alice" in every.stdout and "of-bob" in every.stdout
        assert every.stderr == ""
        one = run(server, "ps", "--account", "bob", token=OPS)
        assert "of-alice" not in one.stdout and "of-bob" in one.stdout


class TestLogs:
    def test_what_was_printed(self, start_server, gate):
        server = start_server("echo")
        accept(server, "a", gate=str(gate), log="hello there")
        running(server, "a")
        wait_until(lambda: run(server, "logs", "a").stdout == "hello there\n", "the line")
        gate.open()

    def test_following_a_job_that_succeeds_exits_with_0(self, start_server, gate):
        server = start_server("echo")
        accept(server, "a", gate=str(gate), log="first")
        process = start(server, "logs", "-f", "a")
        assert process.stdout.readline() == "first\n", "before the job is over"
        assert process.poll() is None
        gate.open()
        ended = finished(process)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")

    def test_following_a_job_that_fails_exits_with_an_error(self, start_server, gate):
        server = start_server("echo")
        accept(server, "a", gate=str(gate), log="first", fail="broken")
        process = start(server, "logs", "--follow", "a")
        gate.open()
        ended = finished(process)
        assert ended.returncode == 1
        assert ended.stdout.startswith("first\nTraceback (most recent call last):\n")
        assert ended.stdout.endswith("\nValueError: broken\n")
        assert ended.stderr == "the job failed: ValueError: broken\n"

    def test_following_a_finished_job_ends_at_once(self, start_server):
        server = start_server("logs")
        server.predict({"case": "lines"}, id="a")
        expected = "".join(f"{number}\n" for number in range(200))
        for arguments in (["logs", "a"], ["logs", "-f", "a"]):
            ended = run(server, *arguments)
            assert (ended.returncode, ended.stdout) == (0, expected)

    def test_the_last_lines(self, start_server):
        server = start_server("logs")
        server.predict({"case": "lines"}, id="a")
        assert run(server, "logs", "a", "--tail", "2").stdout == "198\n199\n"


class TestModelLogs:
    def test_the_logs_of_a_model_are_those_of_its_setup_and_its_jobs(self, start_server):
        server = start_server("setup_prints")
        server.predict(id="a")
        expected = "setup | loading weights\nsetup | warming up\n"
        for name in ("local/setup_prints", "setup_prints"):
            ended = run(server, "logs", name)
            assert (ended.returncode, ended.stdout, ended.stderr) == (0, expected, "")
        assert run(server, "logs", "--tail", "1").stdout == "setup | warming up\n"

    def test_following_a_model_prints_the_lines_of_new_jobs(self, start_server, gate):
        server = start_server("echo", "--workers", "2")
        server.predict({"log": "before"}, id="first")
        accept(server, "second", gate=str(gate), log="running")
        running(server, "second")
        process = start(server, "logs", "-f", "local/echo")
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines == ["first | before\n", "second | running\n"]
        server.predict({"log": "quick"}, id="third")
        assert process.stdout.readline() == "third | quick\n"
        assert process.poll() is None
        server.signal(signal.SIGKILL)
        ended = finished(process)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "no server responds" in ended.stderr

    def test_following_a_model_loses_no_line_of_many_short_jobs(self, start_server):
        # More jobs between two lists of the newest ones than a list has.
        server = start_server("echo", "--workers", "2", "--queue", "4000")
        server.predict({"log": "first"}, id="first")
        process = start(server, "logs", "-f", "echo")
        assert process.stdout.readline() == "first | first\n"
        count = 2000
        script = (
            "import http.client, json, sys\n"
            "port, start, stop = map(int, sys.argv[1:])\n"
            "client = http.client.HTTPConnection('127.0.0.1', port)\n"
            "for n in range(start, stop):\n"
            "    body = json.dumps({'id': f'job-{n}', 'input': {'log': f'line {n}'}})\n"
            "    headers = {'Content-Type': 'application/json', 'Prefer': 'respond-async'}\n"
            "    client.request('POST', '/predictions', body, headers)\n"
            "    reply = client.getresponse()\n"
            "    assert reply.status == 202, reply.read()\n"
            "    reply.read()\n"
        )
        bounds = [(part * count // 4, (part + 1) * count // 4) for part in range(4)]
        clients = [
            subprocess.Popen([sys.executable, "-c", script, *map(str, (server.port, *part))])
            for part in bounds
        ]
        lines = [process.stdout.readline() for _ in range(count)]
        assert [client.wait(30) for client in clients] == [0] * len(clients)
        assert sorted(lines) == sorted(f"job-{n} | line {n}\n" for n in range(count))
        process.kill()
        assert finished(process).stderr == ""

    def test_following_a_model_that_loads_prints_its_setup(self, start_server, tmp_path):
        model, gate = tmp_path / "model", tmp_path / "gate"
        model.mkdir()
        (model / "cog.yaml").write_text("predict: predict.py:P\n")
        (model / "predict.py").write_text(
            "import pathlib, time\nclass P:\n    def setup(self):\n        print('loading', flush=True)\n"
            f"        while not pathlib.Path({str(gate)!r}).exists():\n            time.sleep(0.01)\n"
            "        print('loaded')\n"
            "    def predict(self) -> str:\n        print('works')\n        return 'x'\n"
        )
        server = start_server(model, until=("STARTING",))
        process = start(server, "logs", "-f")
        assert process.stdout.readline() == "setup | loading\n"
        gate.touch()
        assert process.stdout.readline() == "setup | loaded\n"
        server.wait_health("READY")
        server.predict(id="a")
        assert process.stdout.readline() == "a | works\n"
        process.kill()
        finished(process)

    def test_an_account_sees_the_logs_of_its_own_jobs(self, start_server):
        server = start_server("echo", env=TOKENS)
        for token, id in ((ALICE, "of-alice"), (BOB, "of-bob")):
            headers = {"Authorization": f"Bearer {token}"}
            server.post("/predictions", {"id": id, "input": {"log": "here"}}, headers=headers)
        own = run(server, "logs", "echo", token=ALICE)
        assert own.stdout == "of-alice | here\n"
        assert "admin token" in own.stderr
        both = run(server, "logs", "echo", token=OPS)
        assert (both.stdout, both.stderr) == ("of-alice | here\nof-bob | here\n", "")
        assert run(server, "logs", "echo", "--account", "bob", token=OPS).stdout == "of-bob | here\n"

    def test_an_unknown_model_is_an_error(self, shared_server):
        ended = run(shared_server("echo"), "logs", "ann/other")
        assert ended.returncode == 64
        assert "no model `ann/other`" in ended.stderr and "tidegate ps" in ended.stderr


class TestCancel:
    def test_several_jobs_are_canceled_at_once(self, start_server, gate):
        server = start_server("echo", "--queue", "5")
        for id in ("a", "b", "c"):
            accept(server, id, gate=str(gate))
        running(server, "a")
        ended = run(server, "cancel", "a", "c")
        assert (ended.returncode, ended.stdout.split()) == (0, ["a", "c"])
        for id in ("a", "c"):
            wait_until(
                lambda id=id: server.get(f"/predictions/{id}").json["status"] == "canceled", f"{id} to stop"
            )
        running(server, "b")

    def test_a_failed_cancel_does_not_prevent_the_others(self, start_server, gate):
        server = start_server("echo")
        server.predict(id="over")
        accept(server, "a", gate=str(gate))
        ended = run(server, "cancel", "over", "nothing", "a")
        assert (ended.returncode, ended.stdout.split()) == (1, ["a"])
        assert "already ended (succeeded)" in ended.stderr and "nothing" in ended.stderr

    def test_the_account_is_selected_with_a_flag(self, start_server, gate):
        server = start_server("echo", "--workers", "2", env=TOKENS)
        for token in (ALICE, BOB):
            accept(server, "same", token, gate=str(gate), log="here")
        running(server, "same", "--account", "bob", token=OPS)
        for command in (["logs", "same"], ["cancel", "same"]):
            unclear = run(server, *command, token=OPS)
            assert unclear.returncode == 64
            assert "alice" in unclear.stderr and "--account" in unclear.stderr
        assert run(server, "logs", "same", "--account", "alice", token=OPS).stdout == "here\n"
        assert run(server, "cancel", "same", token=BOB).returncode == 0, "one's own needs no flag"
        assert run(server, "cancel", "same", "--account", "alice", token=OPS).returncode == 0


class TestReplay:
    def test_a_webhook_is_sent_again(self, start_server, receiver):
        server, hook = start_server("echo"), receiver.path()
        server.predict(webhook=receiver.url + hook, webhook_events_filter=["completed"])
        id = receiver.wait(hook)[0].headers["webhook-id"]
        wait_until(lambda: run(server, "replay", id).returncode == 0, "the message to be settled")
        assert receiver.wait(hook, 2)[1].headers["webhook-id"] == id

    def test_an_unknown_message_is_an_error(self, shared_server):
        ended = run(shared_server("echo"), "replay", "msg_unknown")
        assert ended.returncode == 1
        assert "msg_unknown" in ended.stderr


class TestMistakes:
    COMMANDS = pytest.mark.parametrize(
        "command", [["ps"], ["logs", "a"], ["cancel", "a"], ["replay", "msg_0"]]
    )

    @COMMANDS
    def test_no_server_there(self, command):
        ended = run(None, *command, url="http://127.0.0.1:9")
        assert ended.returncode == 1
        assert "no server responds at http://127.0.0.1:9" in ended.stderr
        assert "tidegate serve" in ended.stderr and "--url" in ended.stderr
        assert "connection refused" in ended.stderr and ended.stderr.count("\n") == 1

    @COMMANDS
    def test_no_token_and_a_wrong_one(self, start_server, command):
        server = start_server("echo", env=TOKENS)
        missing = run(server, *command)
        assert (missing.returncode, "a token is required" in missing.stderr) == (64, True)
        wrong = run(server, *command, token="wrong-0123456789abcdef")
        assert (wrong.returncode, "the token is invalid" in wrong.stderr) == (64, True)
        assert "TIDEGATE_API_TOKEN" in wrong.stderr

    @pytest.mark.parametrize("command", [["logs", "unknown-job"], ["cancel", "unknown-job"]])
    def test_an_unknown_job(self, shared_server, command):
        ended = run(shared_server("echo"), *command)
        assert ended.returncode == 1
        assert "has no job `unknown-job`" in ended.stderr and "ps --all" in ended.stderr

    def test_an_invalid_url_is_an_error(self):
        ended = run(None, "ps", url="localhost:5000")
        assert ended.returncode == 64
        assert "--url http://127.0.0.1:5000" in ended.stderr

    def test_another_server(self, receiver):
        ended = run(None, "ps", url=receiver.url)
        assert ended.returncode == 1
        assert "did not respond like a tidegate server" in ended.stderr


def test_following_ends_when_the_server_exits(start_server, gate):
    server = start_server("echo")
    accept(server, "a", gate=str(gate), log="first")
    process = start(server, "logs", "-f", "a")
    assert process.stdout.readline() == "first\n"
    server.signal(signal.SIGKILL)
    ended = finished(process)
    assert ended.returncode == 1
    assert "no server responds" in ended.stderr


class TestPrefixes:
    def test_the_first_characters_of_an_id_are_enough(self, start_server, gate, receiver):
        server, hook = start_server("echo", "--queue", "5"), receiver.path()
        server.predict({"log": "first"}, id="alpha-1", webhook=receiver.url + hook)
        server.predict({"log": "second"}, id="alpha-2")
        server.predict({"log": "third"}, id="alpha-22")
        accept(server, "beta", gate=str(gate))
        running(server, "beta")
        assert run(server, "logs", "alpha-1").stdout == "first\n"
        assert run(server, "logs", "alpha-2").stdout == "second\n", "an exact id is not a prefix"
        ended = run(server, "logs", "alpha")
        assert ended.returncode == 64
        assert "several jobs begin with `alpha`" in ended.stderr and "alpha-22" in ended.stderr
        assert run(server, "cancel", "be").stdout == "beta\n"
        ended = run(server, "logs", "gamma")
        assert ended.returncode == 1 and "has no job `gamma`" in ended.stderr
        message = receiver.wait_terminal(hook) and receiver.received(hook)[-1].headers["webhook-id"]
        wait_until(lambda: run(server, "replay", message[:-2]).returncode == 0, "the message to be settled")

"""Access control: tokens, accounts, public addresses, /shutdown."""

import http.client
import json
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import requests
from environment import MODELS, tidegate_bin, tidegate_env
from http_client import Reply
from processes import descendants
from server_process import Server
from sse import EventStream
from waiting import START_TIMEOUT, wait_until

ALICE = "alice-0123456789abcdef"
BOB = "bob-fedcba9876543210"
ROOT = "root-00112233445566"
TOKENS = f"{ALICE}:alice,{BOB}:bob,{ROOT}:ops:admin"

#: Every route of the server, and some that do not exist.
ROUTES = [
    ("GET", "/"),
    ("GET", "/ui/api/session"),
    ("GET", "/ui/api/models"),
    ("GET", "/ui/api/models/local/echo"),
    ("GET", "/ui/api/jobs/alice/x"),
    ("GET", "/ui/api/jobs/alice/x/events"),
    ("GET", "/ui/api/nothing"),
    ("GET", "/openapi.json"),
    ("POST", "/predictions"),
    ("GET", "/predictions/x"),
    ("PUT", "/predictions/x"),
    ("POST", "/predictions/x/cancel"),
    ("POST", "/trainings"),
    ("GET", "/trainings/x"),
    ("PUT", "/trainings/x"),
    ("POST", "/trainings/x/cancel"),
    ("POST", "/shutdown"),
    ("GET", "/admin/deliveries"),
    ("POST", "/admin/deliveries/x/replay"),
    ("GET", "/admin/models"),
    ("GET", "/admin/queues"),
    ("GET", "/admin/children"),
    ("GET", "/admin/jobs"),
    ("GET", "/admin/logs?model=local/echo"),
    ("GET", "/admin/jobs/alice/x"),
    ("GET", "/admin/jobs/alice/x/attempts"),
    ("GET", "/admin/jobs/alice/x/logs"),
    ("POST", "/admin/jobs/alice/x/cancel"),
    ("GET", "/admin/nothing"),
    ("GET", "/metrics"),
    ("GET", "/nowhere"),
    ("DELETE", "/predictions"),
    ("OPTIONS", "/predictions"),
    ("GET", "/health-check/"),
    ("GET", "//health-check"),
    ("GET", "/health-check/../predictions/x"),
]


def auth(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"Authorization": f"{scheme} {token}"}


@pytest.fixture
def server(start_server) -> Server:
    return start_server("echo", "--workers", "2", env={"TIDEGATE_API_TOKENS": TOKENS})


def put_stream(server: Server, id: str, token: str, **input: object) -> EventStream:
    answer = requests.put(
        f"{server.url}/predictions/{id}",
        json={"input": input},
        headers={"Accept": "text/event-stream", **auth(token)},
        stream=True,
        timeout=15,
    )
    return EventStream(answer)


def raw(server: Server, *lines: str) -> bytes:
    """One request as it stands, for what an HTTP client would not send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "Host: localhost", "Connection: close", "", ""]).encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


class TestAuthentication:
    def test_every_path_except_health_needs_a_token(self, server):
        for method, path in ROUTES:
            for headers in [
                {},
                auth("wrong-0123456789abcdef"),
                auth(ALICE, "Basic"),
                {"Authorization": ALICE},
            ]:
                reply = server.request(method, path, headers=headers)
                assert reply.status == 401, f"{method} {path} {headers}: {reply}"
                assert reply.headers["www-authenticate"] == "Bearer"
                assert list(reply.json) == ["error"]
        assert server.health()["status"] == "READY"

    def test_two_authorization_headers_are_refused(self, server):
        for other in (ALICE, BOB, "wrong"):
            lines = (f"Authorization: Bearer {ALICE}", f"Authorization: Bearer {other}")
            assert raw(server, "GET / HTTP/1.1", *lines).startswith(b"HTTP/1.1 401 ")

    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Token", "TOKEN"])
    def test_a_valid_token_is_accepted(self, server, scheme):
        headers = auth(ALICE, scheme)
        assert server.predict({"text": "in"}, headers=headers).json["output"] == "in"
        assert server.get("/", headers=headers).status == 200
        assert server.get("/ui/api/session", headers=headers).status == 200
        assert server.get("/nowhere", headers=headers).status == 404

    def test_a_refused_request_runs_nothing(self, server):
        reply = server.post("/predictions", {"input": {"log": "it ran"}, "id": "no"})
        assert reply.status == 401
        assert server.get("/predictions/no", headers=auth(ALICE)).status == 404
        assert "it ran" not in server.log()

    def test_a_refused_body_keeps_the_connection_for_the_next_request(self, server):
        """Clients send head and body apart; the refusal may be there before the body."""
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
            for _ in range(300):
                connection.request("POST", "/predictions", b"{}", {"Content-Type": "application/json"})
                refused = connection.getresponse()
                assert refused.status == 401
                refused.read()
                assert refused.will_close is False
                connection.request("GET", "/", headers=auth(ALICE))
                answer = connection.getresponse()
                assert answer.status == 200
                answer.read()

    def test_without_tokens_no_token_is_required(self, shared_server):
        server = shared_server("echo")
        assert server.predict({"text": "x"}, headers=auth("whatever")).json["output"] == "x"


def same_as_unknown(server: Server, method: str, path: str, id: str) -> Reply:
    """Bob's response for `id` is the response for an unused id."""
    unknown = "x" * len(id)
    known, other = (server.request(method, path.format(id=name), headers=auth(BOB)) for name in (id, unknown))
    assert (known.status, known.body.replace(id.encode(), unknown.encode())) == (other.status, other.body)
    hidden = ("date", "content-length")
    assert {k: v for k, v in known.headers.items() if k.lower() not in hidden} == {
        k: v for k, v in other.headers.items() if k.lower() not in hidden
    }
    return known


class TestAccounts:
    def test_another_accounts_job_does_not_exist(self, server, gate):
        server.start({"gate": str(gate), "text": "alice's"}, id="secret", headers=auth(ALICE))
        for path in ("/predictions/{id}", "/trainings/{id}"):
            assert same_as_unknown(server, "GET", path, "secret").status == 404
            assert same_as_unknown(server, "POST", path + "/cancel", "secret").status == 404

        gate.open()
        mine = lambda: server.get("/predictions/secret", headers=auth(ALICE)).json  # noqa: E731
        assert (
            wait_until(lambda: mine()["status"] != "processing" and mine(), "the end")["output"] == "alice's"
        )
        assert same_as_unknown(server, "GET", "/predictions/{id}", "secret").status == 404
        assert same_as_unknown(server, "POST", "/predictions/{id}/cancel", "secret").status == 404

    def test_an_administrator_cannot_read_other_accounts_jobs(self, server):
        server.predict({"text": "alice's"}, id="mine", headers=auth(ALICE))
        assert server.get("/predictions/mine", headers=auth(ROOT)).status == 404

    def test_a_put_of_another_accounts_id_is_a_new_job(self, server, gate):
        server.start({"gate": str(gate), "text": "alice's"}, id="both", headers=auth(ALICE))
        put = lambda token, text: server.put(  # noqa: E731
            "/predictions/both", {"input": {"text": text}}, headers=auth(token)
        )
        assert (put(BOB, "bob's").status, put(BOB, "bob's").json["output"]) == (200, "bob's")
        assert put(BOB, "other").status == 409
        assert put(ALICE, "ignored while it runs").status == 202
        gate.open()
        wait_until(
            lambda: server.get("/predictions/both", headers=auth(ALICE)).json["status"] == "succeeded",
            "the end",
        )
        assert server.get("/predictions/both", headers=auth(ALICE)).json["output"] == "alice's"
        assert server.get("/predictions/both", headers=auth(BOB)).json["output"] == "bob's"

    def test_a_stream_of_another_accounts_id_is_a_new_job(self, start_server, gate):
        server = start_server("generator", "--workers", "2", env={"TIDEGATE_API_TOKENS": TOKENS})
        stream = put_stream(server, "live", ALICE, gate=str(gate), count=3)
        assert stream.next("output").data["chunk"] == "chunk0"
        others = put_stream(server, "live", BOB, count=1).rest()
        assert [event.data["chunk"] for event in others if event.name == "output"] == ["chunk0"]
        gate.open()
        assert stream.next("completed").data["output"] == ["chunk0", "chunk1", "chunk2"]

    def test_one_id_of_two_accounts_in_one_process_is_two_jobs(self, start_server, gates):
        server = start_server("concurrent", env={"TIDEGATE_API_TOKENS": TOKENS})
        for token, gate in zip((ALICE, BOB), gates[:2], strict=True):
            server.start({"gate": str(gate), "text": token[:3]}, id="twin", headers=auth(token))
        look = lambda token: server.get("/predictions/twin", headers=auth(token)).json  # noqa: E731
        for token in (ALICE, BOB):
            wait_until(lambda token=token: look(token)["status"] == "processing", "both to run")
        assert server.post("/predictions/twin/cancel", headers=auth(BOB)).status == 200
        wait_until(lambda: look(BOB)["status"] == "canceled", "the cancel")
        assert look(ALICE)["status"] == "processing"
        gates[0].open()
        wait_until(lambda: look(ALICE)["status"] == "succeeded", "the other to end well")
        assert (look(ALICE)["logs"], look(BOB)["logs"]) == ("begin ali\nend ali\n", "begin bob\n")

    def test_a_job_may_use_an_id_that_runs_for_another_account(self, server, gate):
        server.start({"gate": str(gate)}, id="taken", headers=auth(ALICE))
        body = {"id": "taken", "input": {"text": "x"}}
        assert server.post("/predictions", body, headers=auth(ALICE)).status == 409
        assert server.post("/predictions", body, headers=auth(BOB)).status == 200


class TestTokensFile:
    @pytest.fixture
    def file(self, tmp_path) -> Path:
        return tmp_path / "tokens"

    @pytest.fixture
    def new_token(self, tidegate, file):
        def new(account: str, *flags: str) -> str:
            done = tidegate("token", "new", "--account", account, "--file", file, *flags)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        return new

    def test_a_new_token_is_accepted_and_not_stored_in_the_file(self, start_server, file, new_token):
        token = new_token("alice")
        assert file.stat().st_mode & 0o777 == 0o600
        assert token not in file.read_text()
        server = start_server("echo", "--tokens-file", str(file))
        assert server.predict({"text": "in"}, headers=auth(token)).json["output"] == "in"
        assert server.predict(headers=auth(file.read_text().split()[0])).status == 401

    def test_a_revoked_token_is_refused_after_sighup_and_its_jobs_continue(
        self, start_server, file, new_token, gate
    ):
        alice, bob = new_token("alice"), new_token("bob")
        server = start_server("echo", "--tokens-file", str(file), "--workers", "2")
        server.start({"gate": str(gate), "text": "goes on"}, id="job", headers=auth(alice))
        with_alice = file.read_text()
        file.write_text("".join(line for line in with_alice.splitlines(True) if " alice" not in line))
        assert server.get("/", headers=auth(alice)).status == 200, "nothing changes before the signal"
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.get("/", headers=auth(alice)).status == 401, "the token to be refused")
        assert server.get("/", headers=auth(bob)).status == 200
        gate.open()
        file.write_text(with_alice)
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.get("/", headers=auth(alice)).status == 200, "the token to be back")
        job = lambda: server.get("/predictions/job", headers=auth(alice)).json  # noqa: E731
        wait_until(lambda: job()["status"] == "succeeded", "the job to end")

    @pytest.mark.parametrize("broken", ["nonsense\n", "sha256:12 alice\n", None])
    def test_an_invalid_file_keeps_the_old_tokens(self, start_server, file, new_token, broken):
        token = new_token("alice")
        server = start_server("echo", "--tokens-file", str(file))
        if broken is None:
            file.unlink()
        else:
            file.write_text(file.read_text() + broken)
        server.signal(signal.SIGHUP)
        wait_until(lambda: "failed to reload" in server.log(), "the complaint")
        assert server.get("/", headers=auth(token)).status == 200
        assert "line 2" in server.log() or broken is None

    def test_an_emptied_file_refuses_every_token(self, start_server, file, new_token):
        token = new_token("alice")
        server = start_server("echo", "--tokens-file", str(file))
        file.write_text("")
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.get("/", headers=auth(token)).status == 401, "the token to be refused")
        assert server.get("/").status == 401

    def test_tokens_of_variable_and_file_are_combined(self, start_server, file, new_token):
        token = new_token("bob")
        server = start_server(
            "echo", "--tokens-file", str(file), env={"TIDEGATE_API_TOKENS": f"{ALICE}:alice"}
        )
        for known in (token, ALICE):
            assert server.get("/", headers=auth(known)).status == 200

    @pytest.mark.parametrize("content", [None, "", "nonsense\n", "# only a comment\n"])
    def test_a_file_without_tokens_stops_the_start(self, tidegate, file, content):
        if content is not None:
            file.write_text(content)
        done = tidegate("serve", MODELS / "echo", "--port", "0", "--tokens-file", file)
        assert done.returncode == 64 and str(file) in done.stderr


class TestTokenNew:
    def test_the_token_is_on_stdout_and_its_hash_beside_it(self, tidegate):
        done = tidegate("token", "new", "--account", "alice", "--admin")
        token = done.stdout.strip()
        assert token.startswith("tg_") and len(token) >= 3 + 22 and done.stdout.count("\n") == 1
        assert token not in done.stderr
        hash, account, admin = done.stderr.splitlines()[-1].split()
        assert hash.startswith("sha256:") and (account, admin) == ("alice", "admin")

    def test_tokens_are_unique(self, tidegate):
        assert len({tidegate("token", "new", "--account", "a").stdout for _ in range(5)}) == 5

    def test_an_invalid_name_is_refused(self, tidegate, tmp_path):
        file = tmp_path / "tokens"
        done = tidegate("token", "new", "--account", "a b", "--file", file)
        assert done.returncode == 64 and done.stdout == "" and not file.exists()

    def test_an_invalid_file_is_not_changed(self, tidegate, tmp_path):
        file = tmp_path / "tokens"
        file.write_text("something else\n")
        done = tidegate("token", "new", "--account", "a", "--file", file)
        assert done.returncode == 64 and done.stdout == "" and file.read_text() == "something else\n"


def serve_fails(*flags: str, **env: str) -> str:
    """What a server that does not start says."""
    done = subprocess.run(
        [str(tidegate_bin()), "serve", str(MODELS / "echo"), "--port", "0", *flags],
        env=tidegate_env(**env),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    assert done.returncode == 64, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("tokens", "what"),
    [
        ("", "no tokens"),
        (":alice", "empty"),
        ("0123456789-secret", "token:account"),
        ("0123456789-secret:a:boss", "token:account"),
        ("0123456789-secret:a,0123456789-secret:b", "twice"),
        ("0123456789-secret:a b", "' '"),
    ],
)
def test_mistakes_in_the_variable_are_reported_without_the_token(tokens, what):
    said = serve_fails(TIDEGATE_API_TOKENS=tokens)
    assert what in said and "TIDEGATE_API_TOKENS" in said
    assert "secret" not in said


def own_address() -> str:
    """An address of this machine that is not loopback. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("203.0.113.1", 9))
        return probe.getsockname()[0]


class TestPublicAddresses:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "own"])
    def test_a_public_address_is_refused_without_tokens(self, host):
        said = serve_fails("--host", own_address() if host == "own" else host)
        for way_out in ("--tokens-file", "127.0.0.1", "--allow-anonymous"):
            assert way_out in said

    def test_a_public_address_is_accepted_with_tokens(self, start_server):
        server = start_server("echo", "--host", "0.0.0.0", env={"TIDEGATE_API_TOKENS": TOKENS})
        assert requests.get(f"http://{own_address()}:{server.port}/", timeout=10).status_code == 401

    def test_a_public_address_is_accepted_with_the_flag(self, start_server):
        server = start_server("echo", "--host", "0.0.0.0", "--allow-anonymous")
        assert requests.get(f"http://{own_address()}:{server.port}/", timeout=10).status_code == 200

    def test_loopback_needs_neither_tokens_nor_the_flag(self, start_server):
        assert start_server("echo", "--host", "127.0.0.1").health()["status"] == "READY"


class TestShutdown:
    def test_from_another_machine_it_is_forbidden_without_tokens(self, start_server):
        server = start_server("echo", "--host", "0.0.0.0", "--allow-anonymous")
        claims = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "127.0.0.1"}
        url = f"http://{own_address()}:{server.port}/shutdown"
        reply = requests.post(url, headers=claims, timeout=10)
        assert (reply.status_code, list(reply.json())) == (403, ["error"])
        assert server.health()["status"] == "READY"
        assert server.post("/shutdown").status == 200
        assert server.wait_exit() == 0

    def test_an_ipv4_mapped_loopback_address_counts_as_loopback(self, start_server):
        server = start_server("echo", "--host", "::", "--allow-anonymous")
        assert server.post("/shutdown").status == 200
        assert server.wait_exit() == 0

    def test_with_several_accounts_an_administrator_is_required(self, server):
        assert server.post("/shutdown").status == 401
        reply = server.post("/shutdown", headers=auth(ALICE))
        assert (reply.status, list(reply.json)) == (403, ["error"])
        assert server.predict({"text": "alive"}, headers=auth(ALICE)).json["output"] == "alive"
        assert server.post("/shutdown", headers=auth(ROOT)).status == 200
        assert server.wait_exit() == 0

    def test_the_only_account_may_shut_down(self, start_server):
        server = start_server("echo", env={"TIDEGATE_API_TOKENS": f"{ALICE}:alice,{BOB}:alice"})
        assert server.post("/shutdown", headers=auth(BOB)).status == 200
        assert server.wait_exit() == 0


def shown(file: Path) -> bytes:
    """What a process of our user can read there; the server hides more from it than the model does."""
    try:
        return file.read_bytes()
    except PermissionError:
        return b""


class TestSecrets:
    def test_no_token_is_in_the_log_or_in_any_process_environment(self, start_server):
        wrong = "wrong-0123456789abcdef"
        env = {"TIDEGATE_API_TOKENS": TOKENS, "TIDEGATE_API_TOKEN": ROOT}
        server = start_server("echo", "--log-level", "trace", env=env)
        server.predict(headers=auth(ALICE))
        server.predict(headers=auth(wrong))
        server.predict(headers=auth(BOB, "Basic"))
        server.post("/shutdown", headers=auth(ALICE))
        children = descendants(server.process.pid)
        assert children
        processes = [server.process.pid, *children]  # the model can read the server's too
        files = [f"/proc/{pid}/{file}" for pid in processes for file in ("environ", "cmdline")]
        seen = [shown(Path(file)) for file in files]
        for token in (ALICE, BOB, ROOT, wrong):
            assert token not in server.log()
            assert not any(token.encode() in text for text in seen)

    def test_token_hashes_are_not_shown(self, server):
        server.predict(headers=auth(ALICE))
        assert "sha256" not in server.log()


def audit(server: Server) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["target"] == "audit"]


class TestAudit:
    def test_the_audit_log_names_account_and_action(self, start_server, gate, tmp_path, tidegate):
        file = tmp_path / "tokens"
        tidegate("token", "new", "--account", "carol", "--file", file)
        flags = ("--log-format", "json", "--tokens-file", str(file), "--workers", "2")
        server = start_server("echo", *flags, env={"TIDEGATE_API_TOKENS": TOKENS})
        server.start({"gate": str(gate)}, id="job", headers=auth(ALICE))
        server.get("/predictions/job")
        server.post("/predictions/job/cancel", headers=auth(BOB))
        server.post("/predictions/job/cancel", headers=auth(ALICE))
        server.post("/shutdown", headers=auth(ALICE))
        server.signal(signal.SIGHUP)
        wait_until(lambda: any(line["message"] == "tokens reloaded" for line in audit(server)), "the reload")
        server.post("/shutdown", headers=auth(ROOT))
        server.wait_exit()
        told = ("message", "account", "job", "status", "path", "reason", "tokens")
        lines = [{name: line[name] for name in told if name in line} for line in audit(server)]
        assert lines == [
            {"message": "tokens loaded", "tokens": 4},
            {"message": "created", "account": "alice", "job": "job"},
            {
                "message": "refused",
                "status": 401,
                "path": "/predictions/job",
                "reason": "no token: send `Authorization: Bearer TOKEN`",
            },
            {"message": "canceled", "account": "alice", "job": "job"},
            {"message": "refused", "account": "alice", "status": 403, "path": "/shutdown"},
            {"message": "tokens reloaded", "tokens": 4},
            {"message": "shutdown", "account": "ops"},
        ]
        refused = [line for line in audit(server) if line["message"] == "refused"]
        assert all(str(line["peer"]).startswith("127.0.0.1:") for line in refused)

    def test_without_tokens_there_is_no_audit_log(self, start_server):
        server = start_server("echo", "--log-format", "json")
        server.predict()
        server.post("/shutdown")
        server.wait_exit()
        assert audit(server) == []


class TestPredict:
    def run(self, server: Server, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tidegate_bin()), "predict", server.url, "-i", "text=through", *flags],
            env=tidegate_env(**env),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def test_the_client_sends_its_token(self, server, tmp_path):
        file = tmp_path / "token"
        file.write_text(f"{BOB}\n")
        for done in (
            self.run(server, TIDEGATE_API_TOKEN=ALICE),
            self.run(server, "--token-file", str(file), TIDEGATE_API_TOKEN="wrong"),
        ):
            assert (done.returncode, done.stdout.strip()) == (0, "through"), done.stderr

    def test_without_a_token_the_client_says_what_to_do(self, server):
        for env in ({}, {"TIDEGATE_API_TOKEN": "wrong-0123456789abcdef"}):
            done = self.run(server, **env)
            assert done.returncode == 64 and "TIDEGATE_API_TOKEN" in done.stderr
            assert "wrong" not in done.stderr


def test_a_token_of_one_server_is_refused_by_another(start_server):
    one = start_server("echo", env={"TIDEGATE_API_TOKENS": f"{ALICE}:alice"})
    two = start_server("echo", env={"TIDEGATE_API_TOKENS": f"{BOB}:alice"})
    assert (one.get("/", headers=auth(BOB)).status, two.get("/", headers=auth(BOB)).status) == (401, 200)

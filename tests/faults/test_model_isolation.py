"""Rows E17, E18, E19 of docs/reliability.md: user code that accesses the server and its files."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from environment import MODELS, tidegate_bin, tidegate_env
from footprint import assert_recovers, assert_serves
from processes import descendants, peak_memory, reset_peak_memory
from test_user_code_crashes import fails_once
from waiting import wait_until

MIB = 1024 * 1024
SECRETS = {
    "WEBHOOK_AUTH_TOKEN": "planted-token",
    "TIDEGATE_WEBHOOK_SECRET": "whsec_cGxhbnRlZC1zZWNyZXQtMTIzNDU2Nzg=",
}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV])
def test_another_user_cannot_signal_the_server(start_server_as_user, number):
    server = start_server_as_user()
    with assert_recovers(server):
        body = server.predict({"how": "processes.kill_parent", "number": int(number)}).json
    assert body["output"] == "not permitted"


def test_a_signal_to_all_processes_reaches_only_the_models_own(start_server_as_user):
    server = start_server_as_user()
    with assert_recovers(server):
        body = server.predict({"how": "processes.kill_everybody", "number": int(signal.SIGKILL)}).json
    assert body["status"] in ("succeeded", "failed")


def test_the_model_has_no_root_privileges(start_server_as_user, uid):
    identity = start_server_as_user().predict({"how": "processes.identity"}).json["output"]
    assert set(identity["Uid"].split()) == {str(uid)} and set(identity["Gid"].split()) == {str(uid)}
    assert identity["Groups"].split() in ([], [str(uid)])
    assert int(identity["CapEff"], 16) == 0
    assert identity["NoNewPrivs"] == "1", "a setuid program would make it root again"


def test_downloads_of_one_process_are_found_by_the_next(start_server_as_user, tmp_path):
    """The user has no home folder, so the processes get one that they share."""
    model = tmp_path / "downloads"
    model.mkdir()
    (model / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (model / "predict.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "class Predictor:\n"
        "    def setup(self) -> None:\n"
        "        weights = Path.home() / '.cache' / 'weights'\n"
        "        self.found = weights.exists()\n"
        "        weights.parent.mkdir(parents=True, exist_ok=True)\n"
        "        weights.write_text('downloaded')\n"
        "    def predict(self, end: bool = False) -> bool:\n"
        "        if end:\n"
        "            os._exit(1)\n"
        "        return self.found\n"
    )
    server = start_server_as_user(model)
    assert server.predict().json["output"] is False
    server.predict({"end": True})
    server.wait_health("READY")
    assert server.predict().json["output"] is True


@pytest.mark.parametrize("user", ["nobody-knows-him", "nobody:nor-this", ""])
def test_an_unknown_user_is_refused_at_the_start(tmp_path, user):
    done = subprocess.run(
        [tidegate_bin(), "serve", MODELS / "echo", "--port", "0", "--run-as", user],
        env=tidegate_env(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 64
    assert "--run-as" in done.stderr


def test_secrets_are_in_no_process_environment(start_server):
    server = start_server("faults", env=SECRETS)
    body = server.predict({"how": "processes.environment"}).body.decode()
    for secret in SECRETS.values():
        assert secret not in body
    assert not set(SECRETS) & set(server.predict({"how": "processes.environment"}).json["output"]["own"])


def test_another_user_cannot_inspect_the_server(start_server_as_user):
    seen = start_server_as_user(env=SECRETS).predict({"how": "processes.environment"}).json["output"]
    assert set(seen["refused"]) == {"environ", "mem", "maps", "cwd", "fd", "exe"}
    assert "open" not in seen


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps"])
def test_an_output_file_cannot_be_the_servers_own_proc_entry(start_server, receiver, path):
    """`/proc/self` is the model for the model, and the server for the server."""
    server = start_server("faults", env=SECRETS)
    with assert_recovers(server):
        fails_once(server, receiver, "files.path", text=path)


def test_the_model_inherits_no_connection_of_the_server(server):
    """A listening socket in the wrong hands answers in the server's place."""
    server.predict({"text": "a connection that is kept alive"})
    (worker,) = descendants(server.process.pid)
    inodes = {line.split()[9] for line in Path(f"/proc/{worker}/net/tcp").read_text().splitlines()[1:]}
    held = [os.readlink(entry) for entry in Path(f"/proc/{worker}/fd").iterdir()]
    assert not [name for name in held if name.removeprefix("socket:[").rstrip("]") in inodes]


def test_a_process_started_by_the_model_inherits_no_channels(server):
    look = "import os; print([fd for fd in range(3, 1024) if os.path.exists(f'/proc/self/fd/{fd}')])"
    assert server.predict({"how": "processes.python", "text": look}).json["output"] == "[]\n"


ODD_FILES = {
    "fifo": "",
    "link_to": "/dev/zero",
    "link_loop": "",
    "device": "/dev/zero",
    "path": "/dev/stdin",
}


@pytest.mark.parametrize("how", ODD_FILES)
def test_an_output_that_is_not_a_regular_file_is_refused(server, receiver, how):
    with assert_recovers(server, own_files=True):
        fails_once(server, receiver, f"files.{how}", text=ODD_FILES[how])


@pytest.mark.parametrize(
    "target", ["/dev/zero", "fifo", "/proc/kmsg", "/nonexistent", "", "relative", "nul\0"]
)
def test_a_forged_output_file_message_is_refused(server, receiver, tmp_path, target):
    if target == "fifo":
        target = str(tmp_path / "pipe")
        os.mkfifo(target)
    with assert_recovers(server):
        fails_once(server, receiver, "wire.name_a_file", text=target)


def test_a_forged_oversized_output_file_is_refused(server, receiver):
    with assert_recovers(server):
        fails_once(server, receiver, "wire.name_an_oversized_file", text="/etc/passwd")


def test_a_file_pointer_outside_of_the_output_is_refused(server, receiver):
    with assert_recovers(server):
        fails_once(server, receiver, "wire.bad_offset", text="/etc/hostname")


@pytest.fixture
def roots_file(tmp_path) -> Path:
    """A file that only root can read, in a folder that every user can list."""
    tmp_path.chmod(0o755)
    path = tmp_path / "roots.txt"
    path.write_text("for root alone")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("how", ["files.path", "files.link_to", "wire.name_a_file"])
def test_the_server_reads_no_file_that_the_models_user_cannot_read(
    start_server_as_user, receiver, roots_file, how
):
    server = start_server_as_user()
    with assert_recovers(server, own_files=True):
        body = fails_once(server, receiver, how, text=str(roots_file))
    assert "base64" not in str(body)


@pytest.mark.parametrize(("how", "gib"), [("sparse", 1), ("sparse", 100), ("sparse_stream", 100)])
def test_a_sparse_file_is_refused_by_its_size(start_server, small_temp_dir, receiver, how, gib):
    server = start_server("faults")
    with assert_recovers(server, own_files=True):
        reset_peak_memory(server.process.pid)
        body = fails_once(server, receiver, f"files.{how}", number=gib)
    assert "No space" not in body["error"], "it was copied before its size was checked"
    assert peak_memory(server.process.pid) < 300 * MIB


def test_a_sparse_file_of_100_gb_is_not_uploaded(start_server, receiver):
    hook = receiver.path()
    server = start_server("faults", "--upload-url", receiver.plan(hook, 200))
    with assert_recovers(server, own_files=True):
        fails_once(server, receiver, "files.sparse", number=100)


@pytest.mark.parametrize("how", ["endless_handle", "handle_that_raises", "device_handle"])
def test_an_endless_file_handle_fails_the_job_and_leaves_no_file(start_server, small_temp_dir, receiver, how):
    server = start_server("faults")
    with assert_recovers(server):
        fails_once(server, receiver, f"files.{how}", text="/dev/zero")


@pytest.mark.parametrize("how", ["vanishing", "grows", "odd_names", "surrogate_name"])
def test_unusual_files_end_the_job_once(server, how):
    with assert_recovers(server, own_files=True):
        body = server.predict({"how": f"files.{how}"}, timeout=30).json
    assert body["status"] in ("succeeded", "failed")


def test_many_files_are_delivered(server):
    with assert_recovers(server, own_files=True):
        body = server.predict({"how": "files.many", "number": 500}, timeout=30).json
    assert len(body["output"]) == 500


def test_an_upload_that_fails_fails_the_job(start_server, receiver):
    """Never `succeeded` without the file."""
    server = start_server("faults", "--upload-url", receiver.plan(receiver.path(), 500))
    assert server.predict({"how": "files.many", "number": 1}).json["status"] == "failed"


def test_an_upload_that_hangs_can_be_canceled(start_server, receiver):
    hold = threading.Event()
    path = receiver.path()
    server = start_server("faults", "--upload-url", receiver.plan(path, 200, hold=hold))
    try:
        with assert_recovers(server, own_files=True):
            server.start({"how": "files.many", "number": 1}, id="hangs")
            receiver.wait(path)
            server.cancel("hangs")
            wait_until(lambda: server.get("/predictions/hangs").json["status"] == "canceled", "the cancel")
    finally:
        hold.set()


def test_a_full_temporary_folder_fails_only_jobs_that_need_it(start_server, small_temp_dir, receiver):
    server = start_server("faults")
    assert (
        server.predict({"how": "files.fills_temp", "number": 64}).json["output"] == "No space left on device"
    )
    assert_serves(server)
    fails_once(server, receiver, "values.text", number=33)  # travels through a file
    assert_serves(server)
    for path in small_temp_dir.rglob("filler"):
        path.unlink()
    with assert_recovers(server):
        assert server.predict({"how": "values.text", "number": 10}).json["status"] == "succeeded"
        big = server.predict({"how": "echo", "text": "x" * 7_000_000}, timeout=30)
    assert big.json["status"] == "succeeded"


def test_many_connections_from_the_model_do_not_exhaust_the_server(start_server_as_user):
    """Neither for callers nor for health; the model opens all that it may have."""
    server = start_server_as_user()
    with assert_recovers(server):
        opened, _error = server.predict(
            {"how": "processes.sockets", "number": 10_000, "text": f"127.0.0.1:{server.port}"}, timeout=50
        ).json["output"]
        assert opened > 100
        assert server.sibling().predict({"text": "x"}).json["output"] == "echo x"
        server.predict({"how": "deaths.exit"})  # lets go of them


def test_a_model_without_descriptors_still_ends_its_jobs(server):
    with assert_recovers(server):
        server.predict({"how": "processes.descriptors"})
        body = server.predict({"text": "x"}).json
        assert body["status"] in ("succeeded", "failed")
        server.predict({"how": "deaths.exit"})


def test_trained_weights_reach_a_model_that_runs_as_another_user(start_server_as_user, tmp_path):
    server = start_server_as_user("learns", env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")})
    model = server.get("/v1/models/local/learns").json
    path = f"/v1/models/local/learns/versions/{model['latest_version']['id']}/trainings"
    made = server.post(path, {"input": {"word": "salve"}, "destination": "local/learns"}).json

    def version():
        shown = server.get(f"/v1/trainings/{made['id']}").json
        assert shown["error"] is None
        return (shown["output"] or {}).get("version")

    wanted = {"version": wait_until(version, "the version"), "input": {"name": "Ada"}}
    run = server.post("/v1/predictions", wanted, headers={"Prefer": "wait=20"}).json
    assert "".join(run["output"]) == "greeting.txt salve Ada"

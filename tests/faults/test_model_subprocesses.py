"""Row E6 of docs/reliability.md: processes, threads and the event loop of the model."""

import signal

import pytest
from footprint import assert_recovers, assert_serves, processes_with_tag, tag_of
from http_client import wait_for_end
from processes import descendants, is_alive, kill, paused
from waiting import wait_until

LEFT = ["fork", "subprocess_left", "daemon", "daemon_without_environment"]


@pytest.mark.parametrize("how", LEFT)
def test_a_background_process_neither_delays_the_result_nor_outlives_the_server(server, how):
    pid = server.predict({"how": f"processes.{how}"}).json["output"]
    assert is_alive(pid)
    assert_serves(server)
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    wait_until(lambda: not is_alive(pid), "the process to be gone", 5)


@pytest.mark.parametrize("how", LEFT)
def test_a_background_process_is_killed_with_its_child(server, how):
    with assert_recovers(server):
        pid = server.predict({"how": f"processes.{how}"}).json["output"]
        assert server.predict({"how": "deaths.exit"}).json["status"] == "failed"
        wait_until(lambda: not is_alive(pid), "the process to be gone", 5)


KILLED_WITH_THE_SERVER = [*LEFT, "orphan_without_environment"]


def test_no_process_survives_a_killed_server(start_server):
    """Two children, because each must find its own processes."""
    server = start_server("faults", "--workers", "2", "--queue", "20")
    pids = [
        server.predict({"how": f"processes.{how}"}).json["output"]
        for how in KILLED_WITH_THE_SERVER
        for _ in range(2)
    ]
    assert all(map(is_alive, pids))
    server.signal(signal.SIGKILL)
    server.wait_exit()
    wait_until(lambda: not any(map(is_alive, pids)), "the processes to be gone", 10)


def test_a_stopped_child_does_not_survive_a_killed_server(server):
    """It continues, and ends itself and the processes of the model."""
    started = server.predict({"how": "processes.orphan_without_environment"}).json["output"]
    (child,) = descendants(server.process.pid)[:1]
    with paused(child):
        server.signal(signal.SIGKILL)
        server.wait_exit()
        wait_until(lambda: not is_alive(child) and not is_alive(started), "both to be gone", 10)


def test_a_daemon_without_environment_is_killed_with_its_child_when_another_child_lives(start_server):
    server = start_server("faults", "--workers", "2")
    children = descendants(server.process.pid)
    pid = server.predict({"how": "processes.orphan_without_environment"}).json["output"]
    for child in children:
        kill(child)
        wait_until(lambda child=child: not is_alive(child), "the child to be gone", 5)
        wait_until(lambda: server.model_process_count() == 2, "its replacement", 10)
    wait_until(lambda: not is_alive(pid), "the daemon to be gone", 5)


@pytest.mark.parametrize("how", ["both_halves_return", "fork_raises"])
def test_a_forked_copy_that_returns_does_not_answer_twice(server, receiver, how):
    hook = receiver.path()
    server.start({"how": f"processes.{how}", "text": "once"}, id="half", webhook=receiver.url + hook)
    body = receiver.wait_terminal(hook)
    assert body["status"] == "succeeded"
    for number in range(5):
        assert server.predict({"text": str(number)}).json["output"] == f"echo {number}"
    assert [one.json["status"] for one in receiver.received(hook)].count("succeeded") == 1
    wait_until(lambda: len(processes_with_tag(tag_of(server))) == 2, "the other half to be gone", 5)


def test_a_fork_inside_an_event_loop_does_not_answer_twice(start_server):
    server = start_server("faults_async")
    with assert_recovers(server, slots=4):
        assert server.predict({"how": "forks", "text": "once"}).json["output"] == "once"
        for number in range(5):
            assert server.predict({"text": str(number)}).json["output"] == f"echo {number}"


def test_endless_threads_do_not_block_the_shutdown(server):
    assert server.predict({"how": "processes.threads", "number": 50}).json["output"] > 50
    assert_serves(server)
    server.signal(signal.SIGTERM)
    assert server.wait_exit(10) == 0


def test_a_daemon_started_in_setup_is_killed_with_the_server(start_server, tmp_path):
    folder = tmp_path / "daemon"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(
        "import subprocess\n"
        "class Predictor:\n"
        "    def setup(self):\n"
        "        self.pid = subprocess.Popen(['sleep', '600'], start_new_session=True).pid\n"
        "    def predict(self) -> int:\n"
        "        return self.pid\n"
    )
    server = start_server(folder)
    pid = server.predict().json["output"]
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    wait_until(lambda: not is_alive(pid), "the daemon to be gone", 5)


LOOP = ["stops_loop", "closes_loop", "bad_handler", "task_exits", "cancels_itself", "removes_readers"]


@pytest.mark.parametrize("how", LOOP)
def test_a_misused_event_loop_still_works_or_the_child_is_replaced(start_server, how):
    server = start_server("faults_async", "--cancel-grace", "300ms", "--job-timeout", "3s")
    with assert_recovers(server, slots=4):
        server.start({"how": how, "text": "x"}, id="abuse")
        assert wait_for_end(server, "abuse")["status"] in ("succeeded", "failed")


def test_a_job_that_cancels_other_tasks_does_not_make_their_jobs_canceled(start_server, receiver, gate):
    """`canceled` is what a caller asked for; these have failed."""
    server, hook = start_server("faults_async"), receiver.path()
    with assert_recovers(server, slots=4):
        server.start({"how": "gate", "gate": str(gate)}, id="victim", webhook=receiver.url + hook)
        receiver.wait(hook)
        server.predict({"how": "cancels_others", "text": "x"})
        assert receiver.wait_terminal(hook)["status"] == "failed"

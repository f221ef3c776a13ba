"""Scripts that call `runpod.serverless.start`, with the real package and with our stand-in."""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import requests
from environment import MODELS, free_port, runpod_python, shim_python, tidegate_bin, tidegate_env
from waiting import wait_until

HANDLERS = MODELS / "handlers"
OURS = {"real package": runpod_python, "stand-in": shim_python}


def predict(package, script, *arguments):
    command = [tidegate_bin(), "predict", HANDLERS / script, *arguments]
    return subprocess.run(
        command, env=tidegate_env(OURS[package]()), capture_output=True, text=True, timeout=50
    )


def test_the_script_is_main_and_receives_any_input(handler):
    response = (
        handler("plain.py").post("/runsync", {"input": {"a": [1, {"b": None}], "ü": 1e3}}).json["output"]
    )
    assert response == {
        "input": {"a": [1, {"b": None}], "ü": 1000.0},
        "keys": ["id", "input"],
        "name": "__main__",
    }


def test_a_plain_function_may_return_a_coroutine(handler):
    assert handler("returns_coroutine.py").post("/runsync", {"input": {"a": 1}}).json["output"] == {
        "seen": {"a": 1}
    }


def test_the_first_value_of_the_concurrency_modifier_is_used(handler):
    server = handler("coroutine.py")
    with ThreadPoolExecutor(3) as pool:
        ask = lambda _: server.sibling().post("/runsync", {"input": {"together": 3}}).json["output"]  # noqa: E731
        assert max(response["together"] for response in pool.map(ask, range(3))) == 3


def test_the_flag_overrides_the_modifier(fresh_handler):
    server = fresh_handler("coroutine.py", flags=("--concurrency", "1"))
    jobs = [server.post("/run", {"input": {"sleep": 0.2}}).json["id"] for _ in range(3)]
    response = [server.post(f"/status/{job}").json["output"]["together"] for job in jobs]
    assert response == [1, 1, 1]


def test_a_handler_may_request_a_new_process(handler):
    server = handler("plain.py")
    pids = [server.post("/runsync", {"input": {"refresh": True}}).json["output"]["pid"] for _ in range(2)]
    assert pids[0] != pids[1]
    assert server.post("/runsync", {"input": {"result": "text"}}).json["status"] == "COMPLETED"


def test_concurrent_jobs_continue_when_one_requests_a_new_process(handler):
    server = handler("coroutine.py")
    beside = server.post("/run", {"input": {"together": 2, "sleep": 1}}).json["id"]
    pids = [server.post("/runsync", {"input": {"refresh": 1, "together": 2}}).json["output"]["pid"]]
    assert server.post(f"/status/{beside}").json["status"] == "COMPLETED"
    pids.append(server.post("/runsync", {"input": {"refresh": 1}}).json["output"]["pid"])
    assert pids[0] != pids[1]


def test_every_job_may_have_a_process_of_its_own(handler):
    server = handler("refreshes.py")
    assert len({server.post("/runsync", {"input": {}}).json["output"] for _ in range(3)}) == 3


def test_a_failed_fitness_check_is_a_failed_setup(fresh_handler):
    health = fresh_handler("checked.py").health()
    assert health["status"] == "SETUP_FAILED"
    assert "the disk is fine" in health["setup"]["logs"]
    assert "the fitness check `gpu` says RuntimeError: there is no GPU" in health["setup"]["logs"]


def test_a_script_without_a_handler_is_reported(package):
    result = predict(package, "silent.py")
    assert result.returncode == 1 and "version 1.12.0" in result.stderr
    assert "ended without calling `runpod.serverless.start`" in result.stderr


def test_resources_opened_by_the_script_stay_open(handler):
    assert handler("context.py").post("/runsync", {"input": {}}).json["output"] is True


def test_predict_runs_a_handler_once(package):
    result = predict(package, "plain.py", "--input", "result=text")
    assert (result.returncode, result.stdout.strip()) == (0, "x"), result.stderr
    result = predict(package, "plain.py", "--input", "raise=no")
    assert result.returncode == 1 and "<class 'ValueError'>" in result.stderr


def test_predict_shows_an_invalid_input(package):
    shown = predict(package, "plain.py", "--json", '{"result": "long integer"}')
    assert json.loads(shown.stdout)["output"] == {"n": [2**70, -(10**400)]}, shown.stderr


def test_predict_accepts_runpods_test_input_flag(package, tmp_path):
    (tmp_path / "plain.py").write_bytes((HANDLERS / "plain.py").read_bytes())
    (tmp_path / "test_input.json").write_text('{"id": "x", "input": {"result": "text"}}')
    assert predict(package, tmp_path / "plain.py").stdout == "x\n"
    given = predict(package, tmp_path / "plain.py", "--test_input", '{"input": {"result": "number"}}')
    assert given.stdout == "1.5\n"
    wrong = predict(package, tmp_path / "plain.py", "--test_input", '{"prompt": 1}')
    assert wrong.returncode == 64 and "has no object `input`" in wrong.stderr


def test_a_script_sees_its_arguments_without_the_packages(package):
    words = ["--mine", "a b", "--rp_log_level", "error", "--rp_api_port", "5", "other"]
    given = '{"input": {}}'
    ours = predict(package, "arguments.py", "--test_input", given, "--", *words)
    real = subprocess.run(
        [runpod_python(), "arguments.py", "--test_input", given, *words],
        cwd=HANDLERS,
        capture_output=True,
        text=True,
        timeout=50,
    )
    response = [line for line in real.stdout.splitlines() if line.startswith("TOLD a b ERROR")]
    assert response and response[0] in ours.stderr
    assert predict(package, "arguments.py").stderr.count("TOLD none DEBUG") == 1


def test_a_server_accepts_the_packages_arguments(package, tmp_path):
    port = free_port()
    flags = ["--rp_serve_api", "--rp_api_port", str(port), "--rp_api_host", "127.0.0.1"]
    flags += [
        "--rp_api_concurrency",
        "2",
        "--rp_log_level",
        "ERROR",
        "--data-dir",
        "none",
        "--",
        "--mine",
        "x",
    ]
    with (tmp_path / "log").open("w+b") as log:
        process = subprocess.Popen(
            [tidegate_bin(), "serve", HANDLERS / "arguments.py", *flags],
            env=tidegate_env(OURS[package]()),
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: idle_workers(port) == 2, "both processes", 40)
            answer = requests.post(f"http://127.0.0.1:{port}/runsync", json={"input": {}}, timeout=20)
            assert answer.json()["output"] == 1
        finally:
            process.terminate()
            process.wait(20)
        log.seek(0)
        assert b"TOLD x ERROR" in log.read()


def idle_workers(port):
    try:
        return requests.get(f"http://127.0.0.1:{port}/health", timeout=5).json()["workers"]["idle"]
    except requests.ConnectionError:
        return 0


def test_a_script_has_the_usual_name_and_path(package, tmp_path):
    """Relative paths of an image's `CMD` mean the same."""
    (tmp_path / "src").mkdir()
    shutil.copy(HANDLERS / "place.py", tmp_path / "src")
    arguments = ["src/place.py", "--test_input", '{"input": {}}']

    def run(*command):
        env = tidegate_env(OURS[package]())
        return subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50
        )

    ours = json.loads(run(tidegate_bin(), "worker").stdout)["output"]
    assert ours["folder"] == str(tmp_path)
    assert f"Job result: {{'output': {ours}}}" in run(runpod_python()).stdout


def test_the_schema_accepts_every_input(package):
    command = [tidegate_bin(), "schema", HANDLERS / "plain.py"]
    made = subprocess.run(
        command, env=tidegate_env(OURS[package]()), capture_output=True, text=True, timeout=30
    )
    schema = json.loads(made.stdout)["components"]["schemas"]["Input"]
    assert schema == {"title": "Input", "type": "object", "additionalProperties": True}


def test_the_packages_utilities_work_the_same(handler_pool, receiver):
    url = receiver.file("words.txt", b"tea", "text/plain")
    response = []
    for kind in OURS:
        guarded = handler_pool.fresh(kind, "tools.py")
        free = handler_pool.fresh(kind, "tools.py", env={"RUNPOD_ALLOW_PRIVATE_DOWNLOAD_URLS": "1"})
        asked = [guarded.post("/runsync", {"input": {}}), free.post("/runsync", {"input": {"url": url}})]
        response.append([reply.json.get("output", reply.json) for reply in asked])
    assert response[0] == response[1]
    assert response[0][0]["refused"] == "SSRFError" and response[0][1]["fetched"] == "tea"


def test_the_traceback_of_a_failed_job_is_in_its_logs(handler):
    for script, error in (("plain.py", "ValueError: hx"), ("coroutine.py", "KeyError: 'hx'")):
        server = handler(script)
        failed = server.post("/runsync", {"input": {"raise": "hx"}}).json
        logs = server.get(f"/predictions/{failed['id']}").json["logs"]
        assert logs.count("Traceback (most recent call last):") == 1 and error in logs
        command = [str(tidegate_bin()), "ps", "--all", "--url", server.url]
        shown = subprocess.run(command, env=tidegate_env(), capture_output=True, text=True, check=True).stdout
        (row,) = [row for row in shown.splitlines() if row.startswith(failed["id"])]
        assert row.endswith(error)
    server = handler("generator.py")
    failed = server.post("/run", {"input": {"raise": 1}}).json["id"]
    server.post(f"/status/{failed}")
    logs = server.get(f"/predictions/{failed}").json["logs"]
    assert logs.count("Traceback") == 1 and "ValueError: no more" in logs


def test_the_log_lines_are_those_of_the_package(handler_pool):
    lines = []
    for kind in OURS:
        server = handler_pool.fresh(kind, "tools.py")
        job = server.post("/runsync", {"input": {}}).json["id"]
        body = wait_until(lambda server=server, job=job: server.get(f"/predictions/{job}").json, "the job")
        lines.append(
            [
                line.replace(job, "ID")
                for line in body["logs"].splitlines()
                if "ID" in line.replace(job, "ID") or "TRUNC" in line
            ]
        )
    assert lines[0] == lines[1] and "INFO   | ID | hello" in lines[0]

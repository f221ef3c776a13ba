"""Failed and canceled predictions keep their logs and partial output."""

from waiting import wait_until


def test_failed_sync_answer_keeps_logs(shared_server):
    logs = shared_server("echo").predict({"fail": "x", "log": "line"}).json["logs"]
    assert logs.startswith("line\nTraceback (most recent call last):\n")
    assert logs.endswith("\nValueError: x\n")


def test_failed_generator_keeps_output_and_logs(shared_server):
    body = shared_server("generator").predict({"fail_at": 2, "log": "line"}).json
    assert (body["status"], body["output"]) == ("failed", ["chunk0", "chunk1"])
    assert body["logs"].startswith("line\nTraceback")


def test_canceled_generator_keeps_output_and_logs(shared_server, gate):
    server = shared_server("generator")
    with server.in_background({"gate": str(gate), "hold_at": 2, "log": "line"}, id="kept-parts") as job:
        server.wait_health("BUSY")
        wait_until(lambda: len(server.snapshot("kept-parts").get("output", [])) == 2, "two chunks")
        server.cancel("kept-parts")
        body = job.reply().json
    assert (body["status"], body["output"], body["logs"]) == ("canceled", ["chunk0", "chunk1"], "line\n")


def test_a_crash_keeps_the_logs(start_server):
    body = start_server("logs").predict({"case": "crash"}).json
    assert (body["status"], body["error"], body["logs"]) == ("failed", "Worker crashed", "goodbye\n")


def test_a_traceback_is_in_the_server_log(shared_server):
    server = shared_server("echo")
    server.predict({"fail": "look for me"})
    wait_until(
        lambda: "Traceback" in server.log() and "look for me" in server.log(),
        "the traceback in the server log",
    )

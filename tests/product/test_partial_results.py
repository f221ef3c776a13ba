"""Improvement 4: failed and canceled answers keep their logs and partial output."""

from servers import wait_until


def test_failed_sync_answer_keeps_logs(shared):
    assert shared("echo").predict({"fail": "x", "log": "line"}).json["logs"] == "line\n"


def test_failed_generator_keeps_output_and_logs(shared):
    body = shared("generator").predict({"fail_at": 2, "log": "line"}).json
    assert (body["status"], body["output"], body["logs"]) == ("failed", ["chunk0", "chunk1"], "line\n")


def test_canceled_generator_keeps_output_and_logs(shared, gate):
    server = shared("generator")
    with server.in_background({"gate": str(gate), "hold_at": 2, "log": "line"}, id="kept-parts") as job:
        server.wait_health("BUSY")
        wait_until(lambda: len(server.snapshot("kept-parts").get("output", [])) == 2, "two chunks")
        server.cancel("kept-parts")
        body = job.reply().json
    assert (body["status"], body["output"], body["logs"]) == ("canceled", ["chunk0", "chunk1"], "line\n")


def test_a_crash_keeps_the_logs(fresh):
    body = fresh("logs").predict({"case": "crash"}).json
    assert (body["status"], body["error"], body["logs"]) == ("failed", "Worker crashed", "goodbye\n")


def test_a_traceback_is_on_the_terminal(shared):
    server = shared("echo")
    server.predict({"fail": "look for me"})
    wait_until(
        lambda: "Traceback" in server.log() and "look for me" in server.log(),
        "the traceback in the server log",
    )

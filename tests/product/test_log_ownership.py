"""A log line belongs to the job that wrote it."""

from waiting import wait_until


def test_an_unterminated_line_belongs_to_its_job(shared_server):
    server = shared_server("logs")
    assert server.predict({"case": "unterminated"}).json["logs"].rstrip("\n") == "tail"
    assert server.predict({"case": "quiet"}).json["logs"] == ""


def test_an_unterminated_line_is_in_the_webhook(shared_server, receiver):
    hook = receiver.path()
    shared_server("logs").start({"case": "unterminated"}, webhook=receiver.url + hook)
    assert receiver.wait_terminal(hook)["logs"].rstrip("\n") == "tail"


def test_a_thread_that_prints_late_does_not_write_into_the_next_job(shared_server, gate):
    server = shared_server("logs")
    server.predict({"case": "late_thread", "gate": str(gate)})
    server.start({"case": "wait", "gate": str(gate)}, id="innocent")
    gate.open()
    wait_until(lambda: server.get("/predictions/innocent").json["status"] == "succeeded", "the job to end")
    assert server.get("/predictions/innocent").json["logs"] == ""
    wait_until(lambda: "late line" in server.log(), "the line in the server log")

"""spec/cog.md §12: logs."""

import pytest
from waiting import wait_until


@pytest.mark.parametrize(
    "case",
    ["quiet", "print", "colours", "blank", "pieces", "lines", "logger", "thread", "long", "attributes"],
)
def test_case(compare, case):
    reply = compare("logs", lambda server: server.predict({"case": case}))
    assert reply.json["status"] == "succeeded", reply.json


@pytest.mark.parametrize(("case", "line"), [("descriptor", "to fd 1"), ("child", "from a child")])
def test_writes_below_python_go_to_the_server_log(serve, case, line):
    server = serve("logs")
    reply = server.predict({"case": case})
    assert (reply.json["status"], reply.json["logs"]) == ("succeeded", "")
    wait_until(lambda: line in server.log(), "the line in the server log")


def test_bytes_written_to_the_buffer(serve):
    server = serve("logs")
    logs = server.predict({"case": "buffer"}).json["logs"]
    # Deliberate difference: to Cog `sys.stdout.buffer` is below Python; to its users it is printing.
    assert logs == ("" if server.is_cog else "bytes\n")


def test_an_unterminated_line(serve_fresh):
    server = serve_fresh("logs")
    first = server.predict({"case": "unterminated"}).json["logs"]
    second = server.predict({"case": "print"}).json["logs"]
    # Deliberate difference: Cog gives the tail to the next prediction.
    if server.is_cog:
        assert (first, second) == ("", "tailone\ntwo\nthree-four!\n")
    else:
        assert first in ("tail", "tail\n")
        assert second == "one\ntwo\nthree-four!\n"


def test_writelines(serve):
    server = serve("logs")
    body = server.predict({"case": "write_lines"}).json
    # Deliberate difference: Cog's sys.stdout has no writelines() (AttributeError).
    assert (body["status"], body["logs"]) == (("failed", "") if server.is_cog else ("succeeded", "x\ny\n"))


def test_prediction_lines_are_in_the_server_log(serve):
    server = serve("logs")
    server.predict({"case": "print"}, id="traced")
    wait_until(lambda: "three-four!" in server.log(), "the line in the server log")

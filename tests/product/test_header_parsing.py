"""Prefer and Accept are parsed as lists."""

import http.client

import pytest


@pytest.mark.parametrize(
    ("prefer", "status"),
    [
        (["respond-async"], 202),
        (["respond-async, wait=10"], 202),
        (["wait=10 , respond-async"], 202),
        (["wait=10", "respond-async"], 202),
        (["RESPOND-ASYNC"], 202),
        (["respond-async; foo=bar"], 202),
        (["return=minimal"], 200),
        (["x-respond-async"], 200),
        (['foo="respond-async"'], 200),
    ],
)
def test_prefer(shared_server, prefer, status):
    server = shared_server("echo")
    assert _post(server, "Prefer", prefer)[0] == status
    server.wait_idle()


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        (["text/event-stream"], True),
        (["application/json", "text/event-stream"], True),
        (["application/json;q=0.9,text/event-stream;q=1.0"], True),
        (["TEXT/EVENT-STREAM"], True),
        (["application/json"], False),
        (["*/*"], False),
    ],
)
def test_accept(shared_server, accept, streams):
    server = shared_server("generator")
    _, content_type = _post(server, "Accept", accept)
    assert content_type == ("text/event-stream" if streams else "application/json")
    server.wait_idle()


def _post(server, name, values):
    """One POST in which the header `name` has a line for each value."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("POST", "/predictions")
    for value in values:
        connection.putheader(name, value)
    body = b'{"input": {}}'
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, response.getheader("content-type").partition(";")[0]

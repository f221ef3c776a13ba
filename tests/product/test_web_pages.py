"""Requests of web pages: a browser on the same machine sends them for every page that its user visits."""

import socket

import pytest
from environment import MODELS
from http_client import Reply
from server_process import Server

TOKEN = "alice-0123456789abcdef"
#: What a browser sends with the request of a page of another site.
EVIL_PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
#: Requests that change state, or would if they were accepted.
CHANGES = [
    ("POST", "/shutdown"),
    ("POST", "/predictions"),
    ("PUT", "/predictions/x"),
    ("POST", "/predictions/x/cancel"),
    ("POST", "/v1/predictions"),
    ("POST", "/v1/files"),
    ("DELETE", "/v1/files/x"),
    ("POST", "/admin/jobs/anonymous/x/cancel"),
    ("POST", "/nowhere"),
]
READS = [
    ("GET", "/health-check"),
    ("GET", "/"),
    ("GET", "/ui/"),
    ("GET", "/ui/api/session"),
    ("GET", "/v1/predictions"),
    ("GET", "/metrics"),
]


def status_line(server: Server, request: bytes) -> bytes:
    """Send a request that an HTTP client would not send; return the first line of the response."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as response:
            return response.readline()


def message(reply: Reply) -> str:
    """The reason of a refusal, in the format of the API."""
    assert reply.status == 403, str(reply)
    return reply.json["detail" if "detail" in reply.json else "error"]


def test_a_page_of_another_site_changes_nothing(shared_server):
    server = shared_server("echo")
    for method, path in CHANGES:
        said = message(server.request(method, path, headers=EVIL_PAGE, json={"input": {"log": "it ran"}}))
        assert "`https://evil.example`" in said and "--allow-origin" in said
    for origin in ("null", f"http://127.0.0.1:{server.port + 1}"):
        assert server.predict(headers={"Origin": origin}).status == 403
    assert server.predict(headers={"Sec-Fetch-Site": "same-site"}).status == 403
    assert server.health()["status"] == "READY" and "it ran" not in server.log()


def test_a_page_cannot_rename_itself_to_the_server(shared_server):
    server = shared_server("echo")
    for host in ("evil.example", f"evil.example:{server.port}", f"localhost.evil.example:{server.port}"):
        for method, path in CHANGES + READS:
            said = message(server.request(method, path, headers={"Host": host}))
            assert "--allow-host evil.example" in said or "--allow-host localhost.evil.example" in said
    for version in ("1.0", "1.1"):
        lines = (f"GET http://evil.example/ HTTP/{version}", "Host: localhost", "Connection: close", "", "")
        assert b" 403 " in status_line(server, "\r\n".join(lines).encode())
    assert 'tidegate_http_refused_total{reason="foreign_host"}' in server.get("/metrics").body.decode()


def test_names_and_addresses_of_this_machine_are_accepted(shared_server):
    server = shared_server("echo")
    for host in ("127.0.0.1", "localhost", "LOCALHOST.", "app.localhost", "[::1]", "192.168.7.7"):
        for value in (host, f"{host}:{server.port}"):
            assert server.predict({"text": value}, headers={"Host": value}).json["output"] == value


def test_own_pages_and_other_programs_are_accepted(shared_server):
    server = shared_server("echo")
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    for headers in (own, {"Origin": server.url}, {"Sec-Fetch-Site": "none"}, {}):
        assert server.predict({"text": "x"}, headers=headers).json["output"] == "x"
    # A link on any page may lead here, and no other page can read the response.
    reply = server.get("/ui/", headers=EVIL_PAGE)
    assert reply.status == 200
    assert not any(name.startswith("access-control-") for name in map(str.lower, reply.headers))
    assert b" 200 " in status_line(server, b"GET /health-check HTTP/1.0\r\n\r\n")


def test_the_operator_names_hosts_and_origins(start_server):
    flags = ("--allow-host", "gpu-box,models.lan", "--public-url", "https://models.example/api")
    server = start_server("echo", *flags, "--allow-origin", "https://app.example")
    for host in ("gpu-box:5000", "Models.LAN", "models.example"):
        assert server.predict({"text": "x"}, headers={"Host": host}).json["output"] == "x"
    assert server.predict(headers={"Host": "other.example"}).status == 403
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    reply = server.predict({"text": "x"}, headers=page)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "https://app.example")
    assert server.predict(headers={**page, "Origin": "https://models.example"}).status == 200
    asked = {
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "content-type,prefer",
    }
    allowed = server.request("OPTIONS", "/predictions/x", headers={**page, **asked})
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-methods"] == "PUT"
    assert allowed.headers["access-control-allow-headers"] == "content-type,prefer"
    assert server.predict(headers=EVIL_PAGE).status == 403
    refused = server.request("OPTIONS", "/predictions/x", headers={**EVIL_PAGE, **asked})
    assert "access-control-allow-origin" not in refused.headers


def test_with_tokens_a_page_needs_a_token_and_its_permission_does_not(start_server):
    env = {"TIDEGATE_API_TOKENS": f"{TOKEN}:alice"}
    server = start_server("echo", "--allow-origin", "https://app.example", env=env)
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allowed = server.request("OPTIONS", "/predictions", headers={**page, **asked})
    assert (allowed.status, allowed.headers["access-control-allow-headers"]) == (200, "authorization")
    refused = server.predict(headers=page)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (
        401,
        "https://app.example",
    )
    auth = {"Authorization": f"Bearer {TOKEN}"}
    assert server.predict(headers={**page, **auth}).status == 200
    named = {"Host": "evil.example", **EVIL_PAGE, **auth}
    assert server.predict(headers=named).status == 200


@pytest.mark.parametrize(
    ("flag", "value"), [("--allow-host", "http://gpu-box:5000"), ("--allow-origin", "app.example")]
)
def test_a_wrong_name_is_refused_at_the_start(tidegate, flag, value):
    done = tidegate("serve", MODELS / "echo", "--port", "0", flag, value)
    assert done.returncode == 64 and flag in done.stderr

"""The page of the web UI: its files, headers and redirects, on every kind of server that has it."""

from __future__ import annotations

import gzip
import re
from urllib.parse import urljoin

import pytest
import requests
from fleet_file import account, endpoint, model
from ui_requests import BROWSER, get

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; media-src 'self' blob: data:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'"
)
TOKEN = "alice-0123456789abcdef"


def assets(text: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]+)"', text)


@pytest.fixture(
    params=["serve", "several", "platform", "router", "router with accounts", "serve with tokens"]
)
def url(request, start_server, tmp_path) -> str:
    """A server of each kind."""
    if request.param == "serve":
        return request.getfixturevalue("shared_server")("echo").url
    if request.param == "serve with tokens":
        return start_server("echo", env={"TIDEGATE_API_TOKENS": f"{TOKEN}:alice"}).url
    if request.param == "several":
        for name in ("one", "two"):
            (tmp_path / "models" / name).mkdir(parents=True)
            (tmp_path / "models" / name / "cog.yaml").write_text("predict: predict.py:Predictor\n")
            (tmp_path / "models" / name / "predict.py").write_text(
                "class Predictor:\n    def predict(self) -> str:\n        return ''\n"
            )
        return start_server(tmp_path / "models").url
    if request.param == "platform":
        return request.getfixturevalue("platform").url
    upstream = request.getfixturevalue("upstream")
    accounts = (account("a"),) if request.param == "router with accounts" else ()
    return request.getfixturevalue("router")(model("m", endpoint(upstream.url)), accounts=accounts).url


def test_the_page_and_its_files_need_no_token(url):
    for path in ("/ui/", "/ui/jobs", "/ui/jobs/x%2Fy", "/ui/models/ann/echo", "/ui/models/@cf/a/b/c"):
        reply = get(url, path)
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cross-origin-opener-policy"] == "same-origin"
        links = assets(reply.text)
        assert links and "{{" not in reply.text
        for link in links:
            # As a browser below the prefix of a proxy would.
            resolved = urljoin(f"http://proxy/deep/prefix{path}", link)
            assert resolved.startswith("http://proxy/deep/prefix/ui/assets/")
            file = get(url, resolved.removeprefix("http://proxy/deep/prefix"))
            assert file.status_code == 200
            assert "immutable" in file.headers["cache-control"]
            assert file.headers["x-content-type-options"] == "nosniff"


def test_files_are_compressed_for_clients_that_accept_it(shared_server):
    url = shared_server("echo").url
    links = [urljoin("/ui/", link) for link in assets(get(url, "/ui/").text)]
    assert {link.rpartition(".")[2] for link in links} >= {"js", "css"}
    for link in links:
        plain = get(url, link, **{"Accept-Encoding": "identity"})
        compressed = requests.get(
            url + link, headers={"Accept-Encoding": "br, gzip"}, stream=True, timeout=15
        )
        raw = compressed.raw.read()
        assert "content-encoding" not in plain.headers
        assert compressed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(raw) == plain.content and len(raw) < len(plain.content)
        for reply in (plain, compressed):
            assert reply.headers["vary"].lower() == "accept-encoding"
            assert "immutable" in reply.headers["cache-control"]
            assert reply.headers["content-type"] == plain.headers["content-type"]


def test_a_browser_is_led_to_the_page_and_other_clients_are_not(url):
    reply = get(url, "/", **BROWSER)
    assert (reply.status_code, reply.headers["location"], reply.headers["vary"]) == (303, "ui/", "accept")
    assert (get(url, "/ui").status_code, get(url, "/ui").headers["location"]) == (308, "ui/")
    assert (get(url, "/docs").status_code, get(url, "/docs").headers["location"]) == (303, "ui/docs")
    for accept in ("*/*", "application/json", "text/html;q=0"):
        reply = get(url, "/", Accept=accept)
        assert reply.status_code in (200, 401)
        assert reply.headers["content-type"] == "application/json"
        assert reply.status_code == 401 or reply.headers["vary"] == "accept"


def test_other_files_are_not_found(url):
    assert get(url, "/ui/assets/0123456789abcdef/main.js").status_code == 404
    script = next(link for link in assets(get(url, "/ui/").text) if link.endswith("/main.js"))
    for name in ("index.html", "package.json", "nothing.js", "../main.js", "%2e%2e/main.js"):
        assert get(url, f"/ui/{script.removesuffix('main.js')}{name}").status_code == 404


def test_the_data_needs_a_token(start_server, router, upstream):
    server = start_server("echo", env={"TIDEGATE_API_TOKENS": f"{TOKEN}:alice"})
    running = router(model("m", endpoint(upstream.url)), accounts=(account("a"),))
    for url, token in ((server.url, TOKEN), (running.url, "a-token")):
        for path in ("session", "models", "jobs/~/x", "nothing", ""):
            for wrong in (None, "wrong"):
                reply = get(url, f"/ui/api/{path}", wrong, **BROWSER)
                assert reply.status_code == 401
                assert isinstance(reply.json()["error"], str)
        assert get(url, "/ui/api/session", token).json()["tokens"] is True
        assert get(url, "/ui/api/nothing", token).status_code == 404


def test_the_policy_names_where_output_files_are(start_server):
    flags = ("--public-url", "https://models.example/base", "--upload-url", "https://files.example:8443/x")
    server = start_server("echo", *flags)
    policy = get(server.url, "/ui/").headers["content-security-policy"]
    files = "'self' blob: data: https://models.example https://files.example:8443;"
    assert f"img-src {files}" in policy and f"media-src {files}" in policy
    origins = ["https://models.example", "https://files.example:8443"]
    assert get(server.url, "/ui/api/session").json()["files_origins"] == origins

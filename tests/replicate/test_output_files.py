"""Output files in the Replicate API: URLs that need no token."""

import asyncio
import base64
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import requests
from certificates import make_certificate
from clients import ServedModel, forgeries
from processes import peak_memory
from replicate.helpers import FileOutput
from waiting import wait_until

TOKENS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}
#: No private address may be called.
CLOSED = {"TIDEGATE_ALLOW_PRIVATE_NETWORKS": ""}
MIB = 1024 * 1024
OFFICIAL = {"User-Agent": "replicate-python/1.0.7"}


def on_disk(data) -> list[Path]:
    return list((Path(data["TIDEGATE_DATA_DIR"]) / "files").iterdir())


def fetched(url: str) -> str:
    assert url.startswith("http"), url
    reply = requests.get(url, timeout=15)
    assert reply.status_code == 200, f"{url}: {reply.status_code} {reply.text}"
    return reply.text


def output_of(served: ServedModel, **input) -> object:
    made = served.create(input, headers={"Prefer": "wait"}).json
    assert made["status"] == "succeeded", made
    return made["output"]


@pytest.fixture
def https(serve_model, tmp_path, monkeypatch):
    """Starts a server with TLS whose certificate both clients know."""
    certificate, key = make_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(certificate))

    def start(model: str, **options) -> ServedModel:
        flags = ("--tls-cert", str(certificate), "--tls-key", str(key))
        return serve_model(model, *flags, certificate=certificate, **options)

    return start


def test_an_output_file_is_a_url_that_needs_no_token(serve_model, data):
    ann = serve_model("files_out", env=TOKENS, token="secret-a")
    url = output_of(ann, name="a b é.txt")
    assert url.startswith(f"{ann.server.url}/v1/files/"), url
    assert urlsplit(url).path.endswith("/a%20b%20%C3%A9.txt")
    reply = requests.get(url, timeout=15)
    assert (reply.status_code, reply.text) == (200, "hello")
    assert reply.headers["content-type"] == "text/plain"
    assert "filename*=UTF-8''a%20b%20%C3%A9.txt" in reply.headers["content-disposition"]
    assert [path.stat().st_mode & 0o777 for path in on_disk(data)] == [0o600]
    assert ann.python.files.list() == []


def test_lists_and_nested_files(serve_model):
    model = serve_model("files_out")
    assert [fetched(url) for url in output_of(model, kind="many")] == ["a", "b", "c"]
    nested = output_of(model, kind="nested")
    assert nested["n"] == 1
    assert fetched(nested["files"][0]) == "a"
    assert fetched(nested["files"][1]["deep"]) == "b"


def test_text_that_looks_like_a_file_stays_text(serve_model):
    model = serve_model("files_out")
    text = "tidegate-file:3f0k3f0k3f0k3f0k3f0k3f0k3f"
    assert output_of(model, kind="text", text=text) == text


def test_python_reads_file_outputs(https):
    model = https("files_out", env=TOKENS, token="secret-a")
    output = model.python.run(model.ref, input={"kind": "one"})
    assert isinstance(output, FileOutput)
    assert (output.read(), b"".join(output)) == (b"hello", b"hello")
    nested = model.python.run(model.ref, input={"kind": "nested"})
    assert nested["files"][1]["deep"].read() == b"b"

    async def without_blocking():
        outputs = await model.python.async_run(model.ref, input={"kind": "many"})
        return [await output.aread() for output in outputs]

    assert asyncio.run(without_blocking()) == [b"a", b"b", b"c"]


def test_npm_reads_file_outputs(https):
    model = https("files_out", env=TOKENS, token="secret-a")
    one = model.npm("run_files", ref=model.ref, options={"input": {"kind": "one", "text": "é"}})
    assert (one["text"], one["url"].startswith(f"{model.server.url}/v1/files/")) == ("é", True)
    many = model.npm("run_files", ref=model.ref, options={"input": {"kind": "many"}})
    assert [file["text"] for file in many] == ["a", "b", "c"]
    nested = model.npm("run_files", ref=model.ref, options={"input": {"kind": "nested"}})
    assert nested["files"][1]["deep"]["text"] == "b"


def test_python_reads_file_outputs_over_plain_http(serve_model):
    model = serve_model("files_out")
    output = model.python.run(model.ref, input={"kind": "one", "text": "é" * 50_000})
    assert isinstance(output, FileOutput)
    assert output.read() == b"".join(output) == ("é" * 50_000).encode()
    nested = model.python.run(model.ref, input={"kind": "nested"})
    assert (nested["n"], nested["files"][1]["deep"].read()) == (1, b"b")
    assert model.python.run(model.ref, input={"kind": "one", "text": ""}).read() == b""
    many = asyncio.run(model.python.async_run(model.ref, input={"kind": "many"}))
    assert [output.read() for output in many] == [b"a", b"b", b"c"]
    assert [output.url.partition(",")[0] for output in many] == [
        "data:text/plain;base64",
        "data:image/png;base64",
        "data:application/octet-stream;base64",
    ]


def test_python_reads_the_files_of_an_iterator_over_plain_http(serve_model):
    model = serve_model("files_stream")
    outputs = list(model.python.run(model.ref, input={"count": 3}))
    assert [output.read() for output in outputs] == [b"file 0", b"file 1", b"file 2"]


def test_npm_reads_file_outputs_over_plain_http(serve_model):
    model = serve_model("files_out")
    one = model.npm("run_files", ref=model.ref, options={"input": {"kind": "one", "text": "é"}})
    assert (one["text"], one["url"]) == (
        "é",
        "data:text/plain;base64," + base64.b64encode("é".encode()).decode(),
    )
    nested = model.npm("run_files", ref=model.ref, options={"input": {"kind": "nested"}})
    assert nested["files"][1]["deep"]["text"] == "b"


def test_data_uris_are_for_single_predictions_of_the_official_clients(serve_model, receiver):
    """Everything else has URLs: other clients, lists, webhooks, trainings."""
    model, path = serve_model("files_out"), receiver.path()
    receiver.plan(path, 200)
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    made = model.python.predictions.create(version=model.version, input={"text": "hello"}, **hook)
    made.wait()
    uri = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
    assert made.output == model.python.predictions.get(made.id).output == uri
    assert model.npm("get", id=made.id)["output"] == uri
    assert model.python.predictions.cancel(made.id).output == uri
    (message,) = receiver.wait(path)
    listed = model.python.predictions.list().results[0]
    urls = [model.show(made.id)["output"], listed.output, message.json["output"]]
    assert [fetched(url) for url in urls] == ["hello"] * 3


def test_large_data_uris_use_bounded_memory(serve_model):
    """A file that does not fit into 256 MiB of data URIs keeps its URL."""
    model = serve_model("files_out")
    reply = model.create({"size": 200 * MIB}, headers={"Prefer": "wait", **OFFICIAL})
    assert len(reply.json["output"]) > 200 * MIB
    large = model.create({"size": 257 * MIB}, headers={"Prefer": "wait", **OFFICIAL}).json
    assert large["output"].startswith(f"{model.server.url}/v1/files/"), large["output"][:100]
    assert peak_memory(model.server.process.pid) < 100 * MIB


def test_file_urls_use_the_host_of_the_request(serve_model):
    model = serve_model("files_out", "--allow-host", "models.example")
    made = model.create({}, headers={"Prefer": "wait", "Host": "models.example:81"}).json
    assert made["output"].startswith("http://models.example:81/v1/files/")
    assert model.show(made["id"])["output"].startswith(f"{model.server.url}/v1/files/")
    model.kill()
    public = serve_model("files_out", "--public-url", "https://public.example/api")
    assert output_of(public).startswith("https://public.example/api/v1/files/")


def test_webhooks_and_lists_contain_file_urls(serve_model, receiver, tmp_path):
    model, path, gate = serve_model("files_stream"), receiver.path(), tmp_path / "gate"
    receiver.plan(path, 200)
    made = model.create({"count": 2, "gate": str(gate)}, webhook=receiver.url + path).json
    first = receiver.wait(path, 1)[0].json
    assert (first["status"], [fetched(url) for url in first["output"]]) == ("processing", ["file 0"])
    gate.touch()
    last = wait_until(
        lambda: next((r.json for r in receiver.received(path) if r.json["status"] == "succeeded"), None),
        "the end",
    )
    assert [fetched(url) for url in last["output"]] == ["file 0", "file 1"]
    [listed] = model.get("/v1/predictions").json["results"]
    assert (listed["id"], listed["output"]) == (made["id"], last["output"])


def test_streams_contain_file_urls(serve_model):
    model = serve_model("files_stream")
    events = list(model.python.stream(model.ref, input={"count": 2}))
    assert [fetched(event.data) for event in events if event.event.value == "output"] == ["file 0", "file 1"]


def test_npm_reads_the_files_of_a_stream(serve_model):
    model = serve_model("files_stream")
    assert model.npm("stream_files", ref=model.ref, options={"input": {"count": 2}}) == ["file 0", "file 1"]
    path = urlsplit(model.create({}).json["urls"]["stream"]).path
    assert path.startswith("/v1/files/"), "npm's client takes other streams for text"


def test_a_stream_of_files_is_the_same_after_a_kill(serve_model, receiver, tmp_path):
    before, path, gate = serve_model("files_stream"), receiver.path(), tmp_path / "gate"
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    made = before.create({"gate": str(gate)}, **hook).json
    wait_until(lambda: before.show(made["id"])["output"], "the first file")
    before.kill()
    gate.touch()
    after = serve_model("files_stream")
    (response,) = receiver.wait(path)
    paths = {urlsplit(one["urls"]["stream"]).path for one in (made, response.json, after.show(made["id"]))}
    assert len(paths) == 1, paths


def test_file_urls_stay_valid_after_a_kill_and_name_the_new_server(serve_model):
    before = serve_model("files_out", env=CLOSED)
    made = before.create({"kind": "many"}, headers={"Prefer": "wait"}).json
    before.kill()
    after = serve_model("files_out", env=CLOSED)
    assert [fetched(moved(url, after)) for url in made["output"]] == ["a", "b", "c"]
    shown = after.show(made["id"])["output"]
    assert shown == [moved(url, after) for url in made["output"]]
    assert fetched(output_of(after, path=made["output"][1])) == "b"


def test_outputs_can_be_inputs_of_their_account_only(serve_model):
    """Private addresses are forbidden to inputs, and the server's own is one; it needs no call."""
    ann = serve_model("files_out", env=TOKENS | CLOSED, token="secret-a")
    bob = ServedModel(ann.server, ann.name, "secret-b")
    url = output_of(ann, text="chained")
    assert fetched(output_of(ann, path=url)) == "chained"
    assert bob.create({"path": url}).status == 422


def test_forged_file_urls_are_refused(serve_model):
    ann = serve_model("files_out", env=TOKENS, token="secret-a")
    url, other = output_of(ann, text="1"), output_of(ann, text="2")
    for forged in forgeries(url, other):
        assert requests.get(forged, timeout=15).status_code == 404, forged
    assert requests.get(url.split("?")[0].removesuffix("/out.txt"), timeout=15).status_code == 401


def test_outputs_are_removed_with_their_prediction(serve_model, data):
    model = serve_model("files_out", "--keep-for", "2s")
    made = model.create({"kind": "many"}, headers={"Prefer": "wait"}).json
    url = made["output"][0]
    assert (fetched(url), len(on_disk(data))) == ("a", 3)
    wait_until(lambda: requests.get(url, timeout=15).status_code == 404, "the end of the address")
    wait_until(lambda: on_disk(data) == [], "the end of the files")
    assert model.get(f"/v1/predictions/{made['id']}").status == 404


def test_files_of_removed_predictions_are_deleted_after_a_restart(serve_model, data):
    before = serve_model("files_out")
    output_of(before, kind="many")
    (Path(data["TIDEGATE_DATA_DIR"]) / "files" / ("0" * 64)).write_text("of nothing")
    before.kill()
    assert len(on_disk(data)) == 4
    serve_model("files_out", "--keep-for", "1s")
    wait_until(lambda: on_disk(data) == [], "the end of the files")


def test_shared_content_is_kept_until_its_last_reference_is_removed(serve_model, data, tmp_path):
    model = serve_model("files_out", "--keep-for", "2s")
    (tmp_path / "same.txt").write_text("hello")
    upload = model.python.files.create(tmp_path / "same.txt")
    url = output_of(model, text="hello")
    assert len(on_disk(data)) == 1
    wait_until(lambda: requests.get(url, timeout=15).status_code == 404, "the end of the output")
    assert fetched(upload.urls["download"]) == "hello"
    assert model.python.files.delete(upload.id)
    wait_until(lambda: on_disk(data) == [], "the end of the bytes")


def test_large_files_use_bounded_memory(serve_model):
    model = serve_model("files_out")
    made = model.create({"text": "begin", "size": 300 * MIB}).json["id"]
    wait_until(lambda: model.show(made)["status"] == "succeeded", "the end", timeout=50)
    url = model.show(made)["output"]
    reply = requests.get(url, headers={"Range": f"bytes={300 * MIB - 3}-"}, timeout=60)
    assert (reply.status_code, reply.content) == (206, b"\0\0\0")
    with httpx.stream("GET", url, timeout=60) as whole:
        assert sum(len(chunk) for chunk in whole.iter_bytes()) == 300 * MIB
    status = Path(f"/proc/{model.server.process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
    assert peak < 200, f"{peak} MiB"


def test_a_file_above_the_limit_fails_the_prediction(serve_model, data, tmp_path):
    model = serve_model("files_out", "--max-file", "1MiB")
    (tmp_path / "large").write_bytes(b"1" * (MIB + 1))
    input = {"kind": "existing", "name": str(tmp_path / "large")}
    made = model.create(input, headers={"Prefer": "wait"}).json
    assert (made["status"], f"more than the maximum of {MIB}" in made["error"]) == ("failed", True), made[
        "error"
    ]
    assert on_disk(data) == []


def test_an_unreadable_output_file_fails_the_prediction(serve_model):
    made = serve_model("files_out").create({"kind": "half"}, headers={"Prefer": "wait"}).json
    assert (made["status"], made["output"]) == ("failed", None)
    assert "/nonexistent/file.txt" in made["error"]


def test_the_cog_api_keeps_data_uris(serve_model):
    model = serve_model("files_out")
    output = model.server.predict({"text": "hello"}).json["output"]
    assert output == "data:text/plain;base64," + base64.b64encode(b"hello").decode()


def test_the_cog_api_shows_file_urls_for_replicate_predictions(serve_model):
    model = serve_model("files_out")
    made = model.create({}, headers={"Prefer": "wait"}).json
    assert fetched(model.get(f"/predictions/{made['id']}").json["output"]) == "hello"


def test_the_cog_api_streams_file_urls_for_replicate_predictions(serve_model):
    model = serve_model("files_stream", "--owner", "local")
    made = model.create({"count": 2}, headers={"Prefer": "wait"}).json
    events = model.server.stream(made["input"], id=made["id"]).rest()
    assert [fetched(url) for url in events[-1].data["output"]] == ["file 0", "file 1"], events


def test_without_a_data_folder_outputs_are_data_uris(serve_model):
    model = serve_model("files_out", env={"TIDEGATE_DATA_DIR": "none"})
    assert output_of(model).startswith("data:text/plain;base64,")


def test_an_upload_url_takes_precedence(serve_model, receiver):
    path = receiver.path()
    receiver.plan(path, 200)
    model = serve_model("files_out", "--upload-url", receiver.url + path)
    assert output_of(model) == f"{receiver.url}{path}/out.txt"


def moved(url: str, served: ServedModel) -> str:
    """The same address on a server that has another port now."""
    parts = urlsplit(url)
    return f"{served.server.url}{parts.path}?{parts.query}"

"""Models that clients create, and model metadata, with both clients."""

import asyncio

import pytest
from clients import NpmError, ServedModel
from replicate.exceptions import ReplicateError

TOKENS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}
PROBLEM = "application/problem+json"


@pytest.fixture
def ann(serve_model):
    return serve_model("echo", env=TOKENS, token="secret-a")


@pytest.fixture
def bob(ann):
    return ServedModel(ann.server, "echo", "secret-b")


def make(served, owner, name, **other):
    options = {"visibility": "private", "hardware": "local"} | other
    return served.python.models.create(owner, name, **options)


def test_with_pythons_client(ann):
    made = make(ann, "ann", "tuned", description="Speaks like a pirate", github_url="https://h/x")
    assert (made.id, made.visibility, made.run_count) == ("ann/tuned", "private", 0)
    assert (made.description, made.github_url) == ("Speaks like a pirate", "https://h/x")
    assert made.latest_version is None
    assert made.versions.list().results == []
    assert ann.python.models.get("ann/tuned") == made
    assert [one.id for one in ann.python.models.list()] == ["local/echo", "ann/tuned"]
    for text in ("PIRATE", "tuned", "ann/"):
        assert [one.id for one in ann.python.models.search(text)] == ["ann/tuned"], text
    assert ann.python.models.delete("ann/tuned") is True
    with pytest.raises(ReplicateError) as raised:
        ann.python.models.get("ann/tuned")
    assert raised.value.status == 404


def test_with_pythons_async_client(ann):
    models = ann.python.models

    async def all_of_it():
        made = await models.async_create("ann", "tuned", visibility="public", hardware="local")
        seen = await models.async_get("ann/tuned")
        page = await models.async_list()
        found = await models.async_search("tun")
        assert await models.async_delete("ann/tuned")
        collection = await ann.python.collections.async_get("all")
        return made, seen, page, found, collection

    made, seen, page, found, collection = asyncio.run(all_of_it())
    assert made == seen
    assert [one.id for one in page] == ["local/echo", "ann/tuned"]
    assert [one.id for one in found] == ["ann/tuned"]
    assert [one.id for one in collection] == ["local/echo"]


def test_with_npms_client(ann):
    named = {"owner": "ann", "name": "tuned"}
    options = {"visibility": "public", "hardware": "local", "paper_url": "https://h/p"}
    made = ann.npm("make_model", **named, options=options)
    assert ann.npm("model", **named) == made
    assert made["paper_url"] == "https://h/p"
    assert ann.npm("versions", **named)["results"] == []
    assert [one["name"] for one in ann.npm("models")["results"]] == ["echo", "tuned"]
    assert ann.npm("search", text="tuned")["results"] == [made]
    assert ann.npm("collection", slug="all")["models"][1] == made
    with pytest.raises(NpmError) as raised:
        ann.npm("make_model", **named, options=options)
    assert raised.value.status == 409


def test_a_private_model_does_not_exist_for_others(ann, bob):
    make(ann, "ann", "mine")
    make(ann, "ann", "shown", visibility="public")
    assert bob.get("/v1/models/ann/mine").status == 404
    assert bob.get("/v1/models/ann/shown").status == 200
    assert [one.id for one in bob.python.models.list()] == ["local/echo", "ann/shown"]
    assert bob.python.models.search("mine").results == []

    def refused(method, name, body=None):
        path = f"/v1/models/ann/{name}"
        return bob.server.request(method, path, json=body, headers=bob.headers).status

    assert (refused("DELETE", "mine"), refused("DELETE", "shown")) == (404, 403)
    assert (refused("PATCH", "mine", {}), refused("PATCH", "shown", {"description": "x"})) == (404, 403)
    with pytest.raises(ReplicateError) as raised:
        make(bob, "ann", "theirs")
    assert raised.value.status == 403


def test_model_metadata_can_be_changed(ann):
    make(ann, "ann", "tuned", description="old", license_url="https://h/l")
    path = "/v1/models/ann/tuned"
    assert ann.get(f"{path}/readme").status == 404
    body = {"description": "new", "readme": "# Tuned"}
    changed = ann.server.request("PATCH", path, json=body, headers=ann.headers)
    assert changed.status == 200
    assert (changed.json["description"], changed.json["license_url"]) == ("new", "https://h/l")
    assert ann.get(path).json == changed.json
    readme = ann.get(f"{path}/readme")
    assert (readme.body, readme.content_type) == (b"# Tuned", "text/markdown; charset=utf-8")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"owner": None, "hardware": None}, "- owner is required\n- hardware is required\n"),
        ({"name": "Not a name"}, "- name: use 1 to 64 lower-case letters"),
        (
            {"visibility": "secret"},
            "- visibility: visibility must be one of the following: public, private\n",
        ),
        ({"hardware": "gpu-t4"}, "- hardware: hardware must be one of the following: local\n"),
        ({"description": 1}, "- description: invalid type: integer"),
    ],
)
def test_invalid_models_are_refused(ann, body, detail):
    usual = {"owner": "ann", "name": "tuned", "visibility": "public", "hardware": "local"}
    reply = ann.server.post("/v1/models", usual | body, headers=ann.headers)
    assert (reply.status, reply.content_type) == (422, PROBLEM), str(reply)
    assert reply.json["detail"].startswith(detail), str(reply)


def test_a_model_served_from_a_folder_cannot_be_deleted(serve_model):
    echo = serve_model("echo")
    body = {"owner": "local", "name": "echo", "visibility": "public", "hardware": "local"}
    assert echo.server.post("/v1/models", body).status == 409
    path = "/v1/models/local/echo"
    for method, below in [("DELETE", ""), ("PATCH", ""), ("DELETE", f"/versions/{echo.version}")]:
        reply = echo.server.request(method, path + below)
        assert (reply.status, reply.content_type) == (403, PROBLEM), str(reply)
    assert echo.server.request("DELETE", f"{path}/versions/{'0' * 64}").status == 404
    # Who looks after the server may add to its owner's models.
    assert echo.server.post("/v1/models", body | {"name": "tuned"}).status == 201
    assert echo.server.request("DELETE", "/v1/models/local/tuned").status == 204


def test_user_models_survive_a_kill(serve_model):
    before = serve_model("echo")
    made = make(before, "anonymous", "tuned", description="d")
    before.kill()
    after = serve_model("echo")
    assert after.python.models.get("anonymous/tuned").description == made.description
    with pytest.raises(ReplicateError):
        make(after, "anonymous", "tuned")


def test_a_readme_comes_from_the_folder(serve_model):
    echo = serve_model("echo")
    path = "/v1/models/local/echo/readme"
    assert echo.get(path).status == 404
    (echo.server.directory / "README.md").write_text("# Écho\n")
    reply = echo.get(path)
    assert reply.content_type == "text/markdown; charset=utf-8"
    assert reply.body.decode() == "# Écho\n"


def test_the_list_of_examples_is_empty(ann):
    assert ann.get("/v1/models/local/echo/examples").json == {"next": None, "previous": None, "results": []}
    assert ann.get("/v1/models/local/other/examples").status == 404


def test_search(ann):
    make(ann, "ann", "tuned", description="Speaks like an echo")
    found = ann.get("/v1/search?query=ECHO").json
    assert list(found) == ["query", "models", "collections", "pages"]
    assert [one["model"]["name"] for one in found["models"]] == ["echo", "tuned"]
    assert [one["metadata"] for one in found["models"]] == [{}, {}]
    assert len(ann.get("/v1/search?query=echo&limit=1").json["models"]) == 1
    assert [one["slug"] for one in ann.get("/v1/search?query=all").json["collections"]] == ["all"]
    assert ann.get("/v1/search?query=nothing").json["models"] == []
    for wrong in ("", "?query=a&limit=0", "?query=a&limit=51"):
        assert ann.get(f"/v1/search{wrong}").status == 422, wrong


def test_one_collection_contains_all_models(ann):
    collection = ann.python.collections.get("all")
    assert (collection.slug, [one.id for one in collection]) == ("all", ["local/echo"])
    with pytest.raises(ReplicateError) as raised:
        ann.python.collections.get("text-to-image")
    assert raised.value.status == 404

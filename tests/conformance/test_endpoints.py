"""spec/cog.md §1: paths, methods and their responses."""

import pytest

INDEX_OF_A_PREDICTOR = {
    "docs_url": "/docs",
    "healthcheck_url": "/health-check",
    "openapi_url": "/openapi.json",
    "predictions_cancel_url": "/predictions/{prediction_id}/cancel",
    "predictions_idempotent_url": "/predictions/{prediction_id}",
    "predictions_url": "/predictions",
    "shutdown_url": "/shutdown",
}
INDEX_OF_TRAININGS = {
    "trainings_cancel_url": "/trainings/{training_id}/cancel",
    "trainings_idempotent_url": "/trainings/{training_id}",
    "trainings_url": "/trainings",
}


def test_index_names_the_endpoints(serve):
    reply = serve("echo").get("/")

    index = reply.json
    assert reply.status == 200
    assert index.pop("cog_version")
    assert {key: index[key] for key in INDEX_OF_A_PREDICTOR} == INDEX_OF_A_PREDICTOR
    assert not set(index) & set(INDEX_OF_TRAININGS)


def test_index_names_trainings_when_the_model_trains(serve):
    index = serve("training").get("/").json
    assert {key: index[key] for key in INDEX_OF_TRAININGS} == INDEX_OF_TRAININGS


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/predictions/", 404, None),
        ("POST", "/predictions/", 404, None),
        ("GET", "/health-check/", 404, None),
        ("POST", "/predictions/a/b", 404, None),
        ("PUT", "/predictions/a/cancel/b", 404, None),
        ("DELETE", "/predictions", 405, "POST"),
        ("PUT", "/predictions", 405, "POST"),
        ("PATCH", "/predictions/x", 405, "PUT"),
        ("POST", "/predictions/x", 405, "PUT"),
        ("GET", "/predictions/x/cancel", 405, "POST"),
        ("PUT", "/predictions/x/cancel", 405, "POST"),
        ("POST", "/health-check", 405, "GET,HEAD"),
        ("POST", "/openapi.json", 405, "GET,HEAD"),
        ("POST", "/", 405, "GET,HEAD"),
        ("GET", "/shutdown", 405, "POST"),
        ("PUT", "/trainings", 405, "POST"),
        ("POST", "/trainings/x", 405, "PUT"),
    ],
)
def test_wrong_paths_and_methods(serve, method, path, status, allow):
    server = serve("echo")
    reply = server.request(method, path)
    assert reply.status == status
    if allow:
        # Deliberate difference: `GET /predictions` and `GET /predictions/{id}` exist on tidegate,
        # so more methods may be allowed there.
        allowed = set(reply.headers["allow"].split(","))
        assert allowed >= set(allow.split(",")) and (allowed == set(allow.split(",")) or not server.is_cog)
    if server.is_cog:
        # Deliberate difference: tidegate may explain the refusal in a JSON body.
        assert reply.body == b""


def test_get_prediction_by_id(serve):
    server = serve("echo")
    reply = server.get("/predictions/unknown")
    # Deliberate difference: tidegate looks the prediction up.
    assert reply.status == (405 if server.is_cog else 404)


def test_docs_page(serve):
    server = serve("echo")
    # Deliberate difference: Cog advertises `/docs` and answers 404.
    assert server.get("/docs").status == (404 if server.is_cog else 303)


@pytest.mark.parametrize("path", ["/", "/health-check", "/openapi.json"])
def test_head(serve, path):
    reply = serve("echo").request("HEAD", path)
    assert (reply.status, reply.body) == (200, b"")


def test_keys_are_sorted(serve):
    body = serve("echo").predict({"text": "a"}, id="sorted").body.decode()
    positions = [body.index(f'"{key}"') for key in ("id", "logs", "metrics", "output", "status")]
    assert positions == sorted(positions)


@pytest.mark.parametrize("path", ["/", "/health-check", "/openapi.json"])
def test_json_headers(serve, path):
    reply = serve("echo").get(path)
    assert reply.content_type == "application/json"
    assert "server" not in reply.headers


def test_cancel_of_nothing(compare):
    reply = compare("echo", lambda server: server.cancel("nobody"))
    assert (reply.status, reply.json) == (404, {})


@pytest.mark.parametrize("model", ["schema_a", "schema_b", "schema_c"])
def test_openapi_schema_equals_that_of_cogs_generator(compare, model):
    reply = compare(model, lambda server: server.get("/openapi.json"))
    assert reply.status == 200

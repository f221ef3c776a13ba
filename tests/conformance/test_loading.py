"""spec/cog.md §7: the kinds of code that can be served."""

import pytest


@pytest.mark.kinds("cog", "tidegate", "tidegate+cog")
@pytest.mark.parametrize(
    ("model", "output"),
    [
        ("function_sync", "sync a"),
        ("function_async", "async a"),
        ("function_gen", ["gen", "a"]),
        ("function_agen", ["agen", "a"]),
        ("plain_class", {"text": "a", "made": True, "record": False}),
    ],
)
def test_shapes(serve, model, output):
    assert serve(model).predict({"text": "a"}).json["output"] == output


@pytest.mark.kinds("cog", "tidegate", "tidegate+cog")
def test_runner_in_a_folder_with_a_sibling_import(serve):
    output = serve("runner").predict({"text": "a"}).json["output"]
    assert (output["text"], output["module"]) == ("AA", "model")


def test_state_persists(serve):
    server = serve("runner")
    first = server.predict().json["output"]["calls"]
    assert server.predict().json["output"]["calls"] == first + 1


@pytest.mark.kinds("cog", "tidegate", "tidegate+cog")
def test_setup_gets_no_weights(serve):
    assert serve("setup_prints").predict().json["output"] == ["None", "from cog.yaml"]


def test_setup_gets_the_weights_of_the_environment(serve_fresh):
    server = serve_fresh("setup_prints", env={"COG_WEIGHTS": "http://weights.invalid/w.tar"})
    assert server.predict().json["output"][0] == "http://weights.invalid/w.tar"

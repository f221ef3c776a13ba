"""spec/cog.md §8: input validation, and the values that reach the function."""

import pytest

ACCEPTED = [
    {},
    {"text": ""},
    {"text": "héllo \U0001f30a \u0000"},
    {"text": "http://example.invalid/not-fetched"},
    {"whole": 0},
    {"whole": -5},
    {"whole": 3.0},
    {"whole": 2**40},
    {"real": 1},
    {"real": -0.25},
    {"real": 1e-9},
    {"flag": True},
    {"anything": {"a": [1, None]}},
    {"table": {"a": {"b": 1}}},
    {"maybe": "m"},
    {"maybe_bare": 4},
    {"either": "s"},
    {"either": 3},
    {"maybe_either": "s"},
    {"words": []},
    {"words": ["x", "y"]},
    {"numbers": [1, 2]},
    {"maybe_words": ["x"]},
    {"bounded": 1},
    {"bounded": 10},
    {"ratio": 0},
    {"ratio": 1},
    {"short": "ab"},
    {"short": "éé"},
    {"lower": "z"},
    {"loose": "abc"},
    {"colour": "green"},
    {"size": 3},
]

REFUSED = [
    {"text": 1},
    {"text": None},
    {"text": ["a"]},
    {"whole": "3"},
    {"whole": 3.5},
    {"whole": True},
    {"whole": None},
    {"real": "0.5"},
    {"real": True},
    {"flag": 1},
    {"flag": "true"},
    {"anything": 5},
    {"anything": "text"},
    {"table": []},
    {"maybe": 5},
    {"either": True},
    {"either": None},
    {"either": 1.5},
    {"words": "x"},
    {"words": ["a", 1]},
    {"words": [None]},
    {"numbers": [1, "2", 3, "4"]},
    {"maybe_words": [1]},
    {"bounded": 0},
    {"bounded": 11},
    {"ratio": 1.01},
    {"ratio": -1},
    {"short": "a"},
    {"short": "abcdef"},
    {"lower": "A"},
    {"lower": ""},
    {"loose": "xyz"},
    {"colour": "blue"},
    {"colour": None},
    {"colour": 1},
    {"size": 4},
    {"size": "1"},
    {"whole": "x", "flag": "y", "colour": "z"},
    {"text": "x" * 200, "whole": "long" * 100},
    {"text": 'quote " and \\ back', "lower": 'Q"\\'},
]


@pytest.mark.parametrize("input", ACCEPTED, ids=str)
def test_accepted(compare, input):
    reply = compare("inputs", lambda server: server.predict(input))
    assert (reply.status, reply.json["status"]) == (200, "succeeded")


def test_unknown_inputs_do_not_reach_the_model(serve):
    server = serve("inputs")
    reply = server.predict({"unknown": 1, "text": "kept"})
    assert (reply.status, "unknown" in reply.json["output"]) == (200, False)
    assert "kept" in str(reply.json["output"]["text"])
    # Deliberate difference: tidegate adds a warning to the logs.
    assert ("Warning: unknown input `unknown`" in reply.json["logs"]) == (not server.is_cog)


@pytest.mark.parametrize("input", REFUSED, ids=lambda input: str(input)[:60])
def test_refused(compare, input):
    reply = compare("inputs", lambda server: server.post("/predictions", {"input": input}))
    assert reply.status == 422
    assert {error["loc"][2].partition("/")[0] for error in reply.detail} <= set(input)


@pytest.mark.parametrize("name", ["maybe", "maybe_bare", "maybe_five", "maybe_either", "maybe_words"])
def test_null_for_an_optional_input(serve, name):
    server = serve("inputs")
    reply = server.post("/predictions", {"input": {name: None}})
    # Deliberate difference: on tidegate null is the same as no value.
    assert reply.status == (422 if server.is_cog else 200)
    if not server.is_cog:
        assert reply.json["output"] == server.predict({}).json["output"]


@pytest.mark.parametrize(
    "input",
    [
        {"none_default": "d"},
        {"name": "n", "none_default": "d"},
        {"count": 0, "none_default": "d"},
        {"name": "n", "count": 1, "colour": "blue", "none_default": "d"},
    ],
    ids=str,
)
def test_missing(compare, input):
    reply = compare("required", lambda server: server.post("/predictions", {"input": input}))
    assert reply.status == 422
    assert {"Field required"} <= {error["msg"] for error in reply.detail} or "colour" in input


def test_missing_fields_one_by_one(compare):
    input = {"name": "n", "none_default": "d"}
    assert compare("required", lambda server: server.post("/predictions", {"input": input})).detail == [
        {"loc": ["body", "input", "count"], "msg": "Field required", "type": "value_error.missing"},
        {"loc": ["body", "input", "colour"], "msg": "Field required", "type": "value_error.missing"},
    ]


@pytest.mark.parametrize("given", [{}, {"none_default": None}], ids=str)
def test_a_default_of_none_without_optional(serve, given):
    server = serve("required")
    reply = server.post("/predictions", {"input": {"name": "n", "count": 1, "colour": "red"} | given})
    # Deliberate difference: Cog requires the input.
    assert reply.status == (422 if server.is_cog else 200)
    if not server.is_cog:
        assert reply.json["output"] == ["n", 1, "red", None, None]


def test_complete(compare):
    input = {"name": "n", "count": 1, "colour": "red", "none_default": "d"}
    reply = compare("required", lambda server: server.predict(input))
    assert reply.json["output"] == ["n", 1, "red", "d", None]


def test_put_and_async_validate_too(compare):
    body = {"input": {"whole": "x"}}
    put = compare("inputs", lambda server: server.put("/predictions/invalid", body))
    deferred = compare(
        "inputs", lambda server: server.post("/predictions", body, headers={"Prefer": "respond-async"})
    )
    assert (put.status, deferred.status) == (422, 422)

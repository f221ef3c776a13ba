"""spec/cog.md §11: metrics."""

import pytest


@pytest.mark.parametrize(
    "case", ["values", "names", "modes", "types", "appends", "dotted", "mapping", "scope"]
)
def test_case(compare, case):
    reply = compare("metrics", lambda server: server.predict({"case": case}))
    assert reply.json["status"] == "succeeded", reply.json


def test_metrics_of_a_failure(serve):
    body = serve("metrics").predict({"case": "fails"}).json
    assert (body["status"], body["metrics"]["before"]) == ("failed", 1)


def test_nothing_is_left_for_the_next_prediction(serve):
    server = serve("metrics")
    server.predict({"case": "dotted"})
    assert set(server.predict({"case": "scope"}).json["metrics"]) == {
        "by_record",
        "by_scope",
        "by_self",
        "predict_time",
    }

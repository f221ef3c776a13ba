"""Values of megabytes reach the model and the client unchanged."""

from concurrent.futures import ThreadPoolExecutor

import pytest

PLAIN = "x" * 1_200_000
#: Needs escapes in JSON, and more than one byte for some characters.
ESCAPED = 'é"\\\n\u2028😀' * 120_000
TEXTS = (PLAIN, "short", ESCAPED, PLAIN[:65_536], ESCAPED[:70_000])

BATCHING = """
class Predictor:
    def predict(self, text: str) -> str:
        return text

    def predict_batch(self, items):
        return [item["text"] for item in items]
"""


ASYNC = """
class Predictor:
    async def predict(self, text: str) -> str:
        return text
"""


def write_model(folder, source):
    (folder / "cog.yaml").write_text('predict: "predict.py:Predictor"\n')
    (folder / "predict.py").write_text(source)
    return folder


def test_large_texts_come_back_unchanged(start_server):
    server = start_server("echo")
    for text in (*TEXTS, *reversed(TEXTS)):
        assert server.predict({"text": text}).json["output"] == text


@pytest.mark.parametrize(
    ("source", "flags"), [(ASYNC, ("--concurrency", "8")), (BATCHING, ("--batch-size", "8"))]
)
def test_large_texts_of_concurrent_predictions_come_back_unchanged(start_server, tmp_path, source, flags):
    server = start_server(write_model(tmp_path, source), *flags)
    texts = TEXTS * 3
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda text: server.predict({"text": text}).json, texts))
    assert [body["output"] == text for body, text in zip(bodies, texts, strict=True)] == [True] * len(texts)


def test_a_large_text_beside_an_invalid_value_is_refused(start_server):
    server = start_server("echo")
    refused = server.predict({"text": PLAIN, "limit": 99})
    assert refused.status == 422
    assert refused.json["detail"][0]["loc"] == ["body", "input", "limit"]
    accepted = server.predict({"text": PLAIN, "unknown": 1, "nothing": None})
    assert accepted.json["output"] == PLAIN
    assert "unknown" in accepted.headers["warnings"]

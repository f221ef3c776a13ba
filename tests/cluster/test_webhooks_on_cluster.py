"""The tests of Replicate's webhooks, against two API processes in turn and two directors."""

import test_replicate_webhooks
from test_replicate_webhooks import *  # noqa: F403

#: A newer interim webhook replaces one that waits, also the first; and a kill of one process changes nothing.
SINGLE_SERVER = (
    "test_many_values_are_combined_into_few_webhooks",
    "test_the_webhook_body_is_the_same_after_a_kill",
)
for name in SINGLE_SERVER:
    assert hasattr(test_replicate_webhooks, name), name
    del globals()[name]


def test_the_last_webhook_equals_the_response_to_a_get(serve_model, receiver):
    """A director renders it, without the secret that signs the URL of the stream."""
    generator, path = serve_model("generator"), receiver.path()
    made = generator.create({"count": 2}, webhook=receiver.url + path).json
    last = receiver.wait_terminal(path)
    assert last == generator.show(made["id"])
    assert last["urls"] == made["urls"] and "stream" in last["urls"]

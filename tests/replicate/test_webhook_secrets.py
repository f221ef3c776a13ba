"""Each account has its own webhook secret."""

import pytest
from clients import ServedModel
from replicate.webhook import InvalidSignatureError, Webhooks, WebhookSigningSecret

ACCOUNTS = {"TIDEGATE_API_TOKENS": "secret-a:ann,secret-b:bob"}
OURS = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def signed_webhook(served: ServedModel, receiver):
    """What is sent when a prediction of this account is over."""
    path = receiver.path()
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    assert served.create({}, **hook).status == 201
    (message,) = receiver.wait(path)
    return {"headers": message.headers, "body": message.body.decode()}


def test_an_accounts_secret_verifies_only_its_webhooks(serve_model, receiver):
    ann = serve_model("echo", env=ACCOUNTS, token="secret-a")
    bob = ServedModel(ann.server, "echo", "secret-b")
    for one, other in [(ann, bob), (bob, ann)]:
        message = signed_webhook(one, receiver)
        secret = one.python.webhooks.default.secret()
        Webhooks.validate(**message, secret=secret)
        assert one.npm("validate", **message, secret=one.npm("secret")["key"]) is True
        with pytest.raises(InvalidSignatureError):
            Webhooks.validate(**message, secret=other.python.webhooks.default.secret())


def test_the_servers_secret_verifies_all_webhooks(serve_model, receiver):
    ann = serve_model("echo", env=ACCOUNTS | {"TIDEGATE_WEBHOOK_SECRET": OURS}, token="secret-a")
    Webhooks.validate(**signed_webhook(ann, receiver), secret=WebhookSigningSecret(key=OURS))
    assert ann.python.webhooks.default.secret().key != OURS


def test_an_accounts_secret_survives_a_kill(serve_model, receiver):
    ann = serve_model("echo", env=ACCOUNTS, token="secret-a")
    secret = ann.python.webhooks.default.secret()
    ann.kill()
    again = serve_model("echo", env=ACCOUNTS, token="secret-a")
    Webhooks.validate(**signed_webhook(again, receiver), secret=secret)

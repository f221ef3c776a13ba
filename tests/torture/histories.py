"""Events of which the tests of the checker make histories."""

from __future__ import annotations

N, M = "n1c1k1z", "n1c1k2z"


def event(t, kind, **fields):
    return {"t": t, "k": kind, **fields}


def asked(t, r, op="create", n=N, **fields):
    return event(
        t, "request", r=r, op=op, method="PUT", path="/x", n=n, **({"id": f"p-{n}", "mode": "later"} | fields)
    )


def reply(t, r, code=202, **body):
    return event(t, "reply", r=r, status=code, body={"json": True, **body})


def begin(t, n=N, pid=7, how="ok"):
    return event(t, "begin", n=n, pid=pid, how=how)


def end(t, n=N, pid=7, how="ok"):
    return event(t, "end", n=n, pid=pid, how=how)


def accepted(n=N, t=1.0, r=1, **fields):
    return [asked(t, r, n=n, **fields), reply(t + 0.01, r, id=f"p-{n}", status="starting")]


def ran(n=N, t=1.02, how="ok"):
    return [begin(t, n), end(t + 0.1, n, how=how)]


def shown(t, r, status="succeeded", n=N, **body):
    sent = {"status": status, "input": n}
    sent |= {"out": "x", "out_nonces": [n]} if status == "succeeded" else {}
    return [
        asked(t, r, op="get", n=n),
        event(t + 0.01, "reply", r=r, status=200, body={"json": True, **sent, **body}),
    ]


def canceled(t, r, status=200, n=N):
    return [asked(t, r, op="cancel", n=n), reply(t + 0.01, r, status)]


def hook(t, h, status, n=N, answer=200):
    sent = {"status": status} | ({"out": "x", "out_nonces": [n]} if status == "succeeded" else {})
    return [event(t, "hook", h=h, n=n, body=sent), event(t + 0.01, "hook_answered", h=h, n=n, status=answer)]


def fault(name, opened, closed):
    return [
        event(opened, "fault", w=1, name=name, phase="open"),
        event(closed, "fault", w=1, name=name, phase="close"),
    ]


def killed(t):
    return [event(t, "server", state="killed", pid=1), *fault("kill_server", t, t + 0.5)]


def stream(t, r, indices, *names):
    events = [asked(t, r, mode="stream"), event(t + 0.01, "stream", r=r, status=200)]
    chunks = [{"event": "output", "index": index, "out": f"o{index}", "out_nonces": [N]} for index in indices]
    body = {"status": "succeeded", "out": "all", "out_nonces": [N], "chunks": ["o0", "o1"]}
    finals = [{"event": name, "body": body} for name in names]
    sent = [event(t + 0.02 + 0.01 * i, "sse", r=r, n=N, **one) for i, one in enumerate([*chunks, *finals])]
    return [*events, *sent, event(t + 0.2, "stream_end", r=r)]


def made(t, r, n=N, account=0, **fields):
    """A prediction of Replicate's API."""
    asked_for = asked(t, r, n=n, id=None, api="replicate", account=account, **fields)
    return [asked_for, reply(t + 0.01, r, 201, id=f"r-{n}", status="starting", input=n)]


def listed(t, r, *nonces, account=0):
    page = event(t + 0.01, "reply", r=r, status=200, body={"json": True, "listed": list(nonces)})
    return [event(t, "request", r=r, op="list", method="GET", path="/x", account=account), page]

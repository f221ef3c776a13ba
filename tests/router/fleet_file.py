"""Writes `fleet.toml`."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def endpoint(url: str, **settings: Any) -> dict[str, Any]:
    return {"url": url, "kind": "openai", **settings}


def model(name: str, *endpoints: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"name": name, **settings, "endpoint": list(endpoints)}


def account(name: str, **settings: Any) -> dict[str, Any]:
    """An account whose token is `NAME-token`."""
    return {"name": name, "token_hash": token_hash(f"{name}-token"), **settings}


def token_hash(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


#: An account that may operate the router, for tests with accounts.
OPERATOR = account("operator", admin=True)


def fleet_toml(*models: dict[str, Any], accounts: tuple[dict[str, Any], ...] = (), **settings: Any) -> str:
    """The text of a file. Probes are slow, so that tests decide what the router learns from requests."""
    settings.setdefault("probe", {"interval": "60s"})
    plain = {name: value for name, value in settings.items() if not isinstance(value, (dict, list))}
    lines = [f"{name} = {_value(value)}" for name, value in plain.items()]
    for name, value in settings.items():
        if isinstance(value, dict):
            lines += [f"[{name}]", *_pairs(value)]
        elif isinstance(value, list):
            for entry in value:
                lines += [f"[[{name}]]", *_pairs(entry)]
    for entry in models:
        endpoints = entry["endpoint"]
        lines += ["[[model]]", *_pairs({key: value for key, value in entry.items() if key != "endpoint"})]
        for settings_of_endpoint in endpoints:
            lines += ["[[model.endpoint]]", *_pairs(settings_of_endpoint)]
    for entry in accounts:
        lines += ["[[account]]", *_pairs(entry)]
    return "\n".join(lines) + "\n"


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)

"""Mask the parts in which two correct responses may differ: times, generated ids, temporary paths."""

from __future__ import annotations

import json
import re
from typing import Any

from http_client import Reply

_SCRATCH = re.compile(r"/tmp/[^\s\"']+")
_TIME_KEYS = {"predict_time", "started_at", "completed_at", "created_at"}


def mask(value: Any, generated_id: bool = True) -> Any:
    """The value with its volatile parts replaced by placeholders."""
    if isinstance(value, dict):
        return {key: _mask_item(key, item, generated_id) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item, generated_id) for item in value]
    if isinstance(value, str):
        return _SCRATCH.sub("<scratch>", value)
    return value


def _mask_item(key: str, item: Any, generated_id: bool) -> Any:
    if key in _TIME_KEYS:
        return "<time>"
    if key == "id" and generated_id and isinstance(item, str):
        return "<id>"
    return mask(item, generated_id)


#: Cog says twice that a prediction has failed: a deliberate difference, tested by test_sync_response.py.
_SAID_TWICE = (
    (re.compile(r"^Prediction failed: (Async p|P)rediction failed: "), "Prediction failed: "),
    (re.compile(r"^Prediction failed: Training failed: "), "Training failed: "),
)


def said_once(error: str) -> str:
    """The error of the real Cog as tidegate words it."""
    for pattern, text in _SAID_TWICE:
        error = pattern.sub(text, error)
    return error


def _of_failure(body: dict[str, Any]) -> dict[str, Any]:
    """A failed prediction without what only tidegate keeps: its logs, which end with the traceback."""
    return body | {"logs": "", "error": said_once(body["error"])} if "error" in body else body | {"logs": ""}


def comparable(reply: Reply) -> dict[str, Any]:
    """The parts of a response that must be the same on both servers."""
    content_type = reply.content_type
    is_json = bool(content_type) and content_type.startswith("application/json")
    body = mask(json.loads(reply.body)) if is_json and reply.body else reply.body.decode(errors="replace")
    if isinstance(body, dict) and body.get("status") == "failed" and "logs" in body:
        body = _of_failure(body)
    return {"status": reply.status, "content_type": content_type, "body": body}

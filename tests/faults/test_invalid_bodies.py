"""Rows D1 and D2 of docs/reliability.md: bodies that are not a valid create request."""

import gzip
import json
import pickle

import pytest
from baseline import assert_refused
from raw_http import exchange, json_request

DEEP = 100_000

#: In place of `HOOK` stands a webhook that must never be called.
NOT_JSON = {
    "a brace": b"{",
    "cut in a key": b'{"inp',
    "cut after a colon": b'{"input":',
    "cut in the input": b'{"webhook":"HOOK","input":{"nonce":"x"',
    "cut before the last brace": b'{"webhook":"HOOK","input":{}',
    "cut in an escape": b'{"webhook":"HOOK","input":{"nonce":"\\u00',
    "cut in a literal": b'{"input":tru',
    "trailing letter": b'{"webhook":"HOOK","input":{}}x',
    "trailing brace": b'{"webhook":"HOOK","input":{}}}',
    "two documents": b'{"webhook":"HOOK","input":{}}{"input":{}}',
    "two lines": b'{"webhook":"HOOK","input":{}}\n{"input":{}}',
    "trailing NUL": b'{"webhook":"HOOK","input":{}}\0',
    "leading NUL": b'\0{"webhook":"HOOK","input":{}}',
    "leading comma": b',{"input":{}}',
    "trailing comma": b'{"webhook":"HOOK","input":{},}',
    "trailing comma in the input": b'{"webhook":"HOOK","input":{"nonce":"x",}}',
    "no comma": b'{"webhook":"HOOK" "input":{}}',
    "no colon": b'{"webhook":"HOOK","input"{}}',
    "no quotes": b"{input:{}}",
    "single quotes": b"{'input':{}}",
    "a comment": b'{"webhook":"HOOK","input":{/* hello */}}',
    "NaN": b'{"webhook":"HOOK","input":{"real":NaN}}',
    "Infinity": b'{"webhook":"HOOK","input":{"real":Infinity}}',
    "-Infinity": b'{"webhook":"HOOK","input":{"real":-Infinity}}',
    "hexadecimal": b'{"webhook":"HOOK","input":{"whole":0x10}}',
    "leading zero": b'{"webhook":"HOOK","input":{"whole":007}}',
    "leading plus": b'{"webhook":"HOOK","input":{"whole":+7}}',
    "no digit after the point": b'{"webhook":"HOOK","input":{"real":1.}}',
    "Python's True": b'{"webhook":"HOOK","input":{"flag":True}}',
    "Python's None": b'{"webhook":"HOOK","input":None}',
    "line break in a string": b'{"webhook":"HOOK","input":{"nonce":"a\nb"}}',
    "NUL in a string": b'{"webhook":"HOOK","input":{"nonce":"a\0b"}}',
    "unknown escape": b'{"webhook":"HOOK","input":{"nonce":"\\x41"}}',
    "a byte that is no UTF-8": b'{"webhook":"HOOK","input":{"nonce":"\xff"}}',
    "UTF-8 cut in a letter": b'{"webhook":"HOOK","input":{"nonce":"\xe2\x82"}}',
    "overlong UTF-8": b'{"webhook":"HOOK","input":{"nonce":"\xc0\xaf"}}',
    "a surrogate in UTF-8": b'{"webhook":"HOOK","input":{"nonce":"\xed\xa0\x80"}}',
    "no UTF-8 in a key": b'{"webhook":"HOOK","input":{"\xff":1}}',
    "no UTF-8 in the id": b'{"webhook":"HOOK","id":"\xff","input":{}}',
    "no UTF-8 in an unknown key": b'{"webhook":"HOOK","input":{},"other":"\xff"}',
    "byte order mark": b'\xef\xbb\xbf{"webhook":"HOOK","input":{}}',
    "UTF-16": '{"webhook":"HOOK","input":{}}'.encode("utf-16"),
    "UTF-32": '{"input":{}}'.encode("utf-32-le"),
    "gzip": gzip.compress(b'{"input":{}}'),
    "pickle": pickle.dumps({"input": {}}),
    "YAML": b"input: {}\n",
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
    "a form": b"input=%7B%7D",
    "only NULs": b"\0" * 1000,
    "only opening brackets": b"[" * DEEP,
    "only opening objects": b'{"a":' * DEEP,
}

WRONG_SHAPE = {
    "array": b'[{"input":{}}]',
    "array of the fields in order": b'["id",{},null,["start"],null]',
    "empty array": b"[]",
    "null": b"null",
    "true": b"true",
    "number": b"3",
    "string": b'"{\\"input\\":{}}"',
    "id: number": b'{"webhook":"HOOK","id":5,"input":{}}',
    "id: true": b'{"webhook":"HOOK","id":true,"input":{}}',
    "id: array": b'{"webhook":"HOOK","id":["a"],"input":{}}',
    "id: object": b'{"webhook":"HOOK","id":{"a":1},"input":{}}',
    "id: lone surrogate": b'{"webhook":"HOOK","id":"\\ud800","input":{}}',
    "id: 1 MiB": b'{"webhook":"HOOK","id":"' + b"x" * 2**20 + b'","input":{}}',
    "id: 1 MiB of escapes": b'{"webhook":"HOOK","id":"' + b"\\u0041" * 2**18 + b'","input":{}}',
    "input: array": b'{"webhook":"HOOK","input":[]}',
    "input: string": b'{"webhook":"HOOK","input":"{}"}',
    "input: number": b'{"webhook":"HOOK","input":0}',
    "input: false": b'{"webhook":"HOOK","input":false}',
    "webhook: number": b'{"webhook":1,"input":{}}',
    "webhook: object": b'{"webhook":{"url":"HOOK"},"input":{}}',
    "webhook: array": b'{"webhook":["HOOK"],"input":{}}',
    "webhook: lone surrogate": b'{"webhook":"HOOK\\udc00","input":{}}',
    "webhook: 1 MiB": b'{"webhook":"HOOK' + b"x" * 2**20 + b'","input":[]}',
    "filter: null": b'{"webhook":"HOOK","webhook_events_filter":null,"input":{}}',
    "filter: string": b'{"webhook":"HOOK","webhook_events_filter":"completed","input":{}}',
    "filter: object": b'{"webhook":"HOOK","webhook_events_filter":{"completed":true},"input":{}}',
    "filter: unknown event": b'{"webhook":"HOOK","webhook_events_filter":["completed","all"],"input":{}}',
    "filter: number in it": b'{"webhook":"HOOK","webhook_events_filter":[1],"input":{}}',
    "filter: null in it": b'{"webhook":"HOOK","webhook_events_filter":[null],"input":{}}',
    "context: array": b'{"webhook":"HOOK","context":[],"input":{}}',
    "context: string": b'{"webhook":"HOOK","context":"a=b","input":{}}',
    "context: number in it": b'{"webhook":"HOOK","context":{"a":1},"input":{}}',
    "context: null in it": b'{"webhook":"HOOK","context":{"a":null},"input":{}}',
    "context: lone surrogate": b'{"webhook":"HOOK","context":{"a":"\\ud83d"},"input":{}}',
    "input twice": b'{"webhook":"HOOK","input":{"nonce":"a"},"input":{"nonce":"b"}}',
    "id twice": b'{"webhook":"HOOK","id":"a","id":"b","input":{}}',
    "webhook twice": b'{"webhook":"HOOK","webhook":"HOOK","input":{}}',
    "filter twice": b'{"webhook":"HOOK","webhook_events_filter":[],"webhook_events_filter":[],"input":{}}',
    "a name in the input twice, further down": b'{"webhook":"HOOK","input":{"anything":{"a":1,"a":2}}}',
    "a name of the input twice": b'{"webhook":"HOOK","input":{"nonce":"a","nonce":"b"}}',
    "a name of the input twice, once escaped": b'{"webhook":"HOOK","input":{"nonce":"a","\\u006eonce":"b"}}',
}

WRONG_INPUT = {
    "text for a number": b'{"whole":"1"}',
    "a fraction for a whole number": b'{"whole":1.5}',
    "true for a number": b'{"whole":true}',
    "a number for text": b'{"nonce":1}',
    "null for text": b'{"nonce":null}',
    "a number for a flag": b'{"flag":1}',
    "text for a list": b'{"words":"a"}',
    "numbers in a list of texts": b'{"words":["a",1]}',
    "an object for text": b'{"nonce":{"a":"b"}}',
    "an object for a file": b'{"path":{"url":"http://127.0.0.1/"}}',
    "a list for a file": b'{"path":["data:,x"]}',
    "a number in a list of files": b'{"paths":["data:,x",1]}',
    "1e400": b'{"real":1e400}',
    "-1e400": b'{"real":-1e400}',
    "1e400 for a whole number": b'{"whole":1e400}',
    "1e400 anywhere": b'{"anything":{"a":[1e400]}}',
    "an exponent of a thousand digits": b'{"real":1e' + b"9" * 1000 + b"}",
    "a whole number of 100,000 digits": b'{"whole":' + b"9" * 100_000 + b"}",
    "a whole number of 100,000 digits anywhere": b'{"anything":{"a":' + b"9" * 100_000 + b"}}",
    "lone surrogate": b'{"nonce":"\\ud800"}',
    "low surrogate first": b'{"nonce":"\\udc00\\ud800"}',
    "lone surrogate in a key": b'{"anything":{"\\ud800":1}}',
    "lone surrogate anywhere": b'{"anything":{"a":["\\udfff"]}}',
}

#: Deeper than any stack, in each place where a value may stand.
DEPTHS = {
    "arrays": b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "input": b'{"webhook":"HOOK","input":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "a known input": b'{"webhook":"HOOK","input":{"anything":{"a":' + b"[" * DEEP + b"]" * DEEP + b"}}}",
    "a text input": b'{"webhook":"HOOK","input":{"nonce":' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "an unknown input": b'{"webhook":"HOOK","input":{"unknown":'
    + b'[{"a":' * DEEP
    + b"1"
    + b"}]" * DEEP
    + b"}}",
    "id": b'{"webhook":"HOOK","id":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "webhook": b'{"webhook":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "filter": b'{"webhook":"HOOK","webhook_events_filter":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "context": b'{"webhook":"HOOK","context":{"a":' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "an unknown key": b'{"webhook":"HOOK","input":{},"other":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "just too deep": b'{"webhook":"HOOK","input":{"anything":{"a":' + b"[" * 130 + b"]" * 130 + b"}}}",
}


def send(baseline, body, **options):
    return exchange(
        baseline.server, json_request(body.replace(b"HOOK", baseline.webhook.encode()), **options)
    )


@pytest.mark.parametrize("name", NOT_JSON)
def test_a_body_that_is_not_json_is_refused(baseline, name):
    assert_refused(send(baseline, NOT_JSON[name]), 400)
    baseline.check()


@pytest.mark.parametrize("name", WRONG_SHAPE)
def test_a_body_with_the_wrong_structure_is_refused(baseline, name):
    assert_refused(send(baseline, WRONG_SHAPE[name]), 400, 422)
    baseline.check()


@pytest.mark.parametrize("name", WRONG_INPUT)
def test_an_input_of_the_wrong_type_is_refused(baseline, name):
    body = b'{"webhook":"HOOK","input":' + WRONG_INPUT[name] + b"}"
    assert_refused(send(baseline, body), 400, 422)
    baseline.check()


@pytest.mark.parametrize("name", DEPTHS)
def test_excessive_nesting_is_refused(baseline, name):
    assert_refused(send(baseline, DEPTHS[name]), 400, 422)
    baseline.check()


@pytest.mark.parametrize(
    "how", [{"prefer": "respond-async"}, {"method": "PUT", "target": "/predictions/bad-body"}]
)
def test_bad_bodies_are_refused_in_every_response_mode(baseline, how):
    for table in (NOT_JSON, WRONG_SHAPE):
        for name, body in table.items():
            reply = send(baseline, body, **how)
            assert 400 <= reply.status < 500, (name, str(reply))
    baseline.check()


def test_a_thousand_bad_bodies_leak_nothing(baseline):
    bodies = [*NOT_JSON.values(), *WRONG_SHAPE.values()]
    for number in range(1000):
        reply = send(baseline, bodies[number % len(bodies)][:2000])
        assert 400 <= reply.status < 500, str(reply)
    baseline.check()


def test_valid_requests_similar_to_bad_ones_are_served(baseline):
    """The table above must not pass because everything is refused."""
    good = {"nonce": "💧é", "whole": 2**53, "real": 1e308, "words": [], "anything": {"a": [[None]]}}
    reply = baseline.server.predict(good)
    assert (reply.status, reply.json["output"]) == (200, "💧é")
    paired = json.dumps({"input": {"nonce": "💧"}}, ensure_ascii=True).encode()
    assert exchange(baseline.server, json_request(b" \r\n\t" + paired + b"\n ")).json["output"] == "💧"

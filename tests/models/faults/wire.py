"""Writes on the channels between server and child."""

import json
import os
import socket
import stat
import struct
import time


def channels():
    """Every pipe and socket of the process, nearest to the runtime's own first."""
    for fd in range(3, 1024):
        try:
            mode = os.fstat(fd).st_mode
        except OSError:
            continue
        if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
            yield fd


def slots():
    """The connected Unix sockets: one per slot."""
    for fd in channels():
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            with socket.socket(fileno=os.dup(fd)) as one:
                if one.family == socket.AF_UNIX and one.getpeername():
                    yield fd


def frame(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("<I", len(data)) + data


def send(message):
    sent = False
    for fd in slots():
        os.write(fd, frame(message))
        sent = True
    if not sent:
        raise RuntimeError("found no slot to write on")


def all_garbage(**_):
    for fd in channels():
        try:
            os.set_blocking(fd, False)
            os.write(fd, b"all your base are belong to us" * 10)
        except OSError:
            continue
    time.sleep(60)


def zeros(**_):
    """Empty frames, for ever: valid lengths, no content."""
    for fd in slots():
        while True:
            os.write(fd, bytes(65536))


def half_frame(**_):
    """A frame that promises 60 MiB and brings ten bytes."""
    for fd in slots():
        os.write(fd, struct.pack("<I", 60 << 20) + b"0123456789")
    return "short"


def too_long(**_):
    for fd in slots():
        os.write(fd, struct.pack("<I", 0xFFFFFFFF))
    time.sleep(60)


def other_job(**_):
    """Ends a job that is not here."""
    send({"done": {"id": "somebody-else", "output": "stolen", "predict_time": 0, "is_stream": False}})
    time.sleep(60)


def own_end(text, **_):
    """Ends its own job behind the runtime's back, and then returns as well."""
    send({"done": {"id": text, "output": "forged", "predict_time": 0, "is_stream": False}})
    return "honest"


def deep_output(**_):
    send(b'{"output":{"output":' + b"[" * 100_000 + b"]" * 100_000 + b"}}")
    return "deep"


def deep_metric(**_):
    send(b'{"metric":{"name":"m","value":' + b"[" * 100_000 + b"]" * 100_000 + b',"mode":"replace"}}')
    time.sleep(60)


def bad_utf8(**_):
    send(b'{"log":{"source":"stdout","data":"\xff\xfe"}}')
    time.sleep(60)


def unknown_message(**_):
    send({"become_root": {}})
    time.sleep(60)


def bad_metric(**_):
    for value in ("x", [1], {"a": 1}, None, -1.5, 1e308):
        for mode in ("replace", "increment", "append"):
            send({"metric": {"name": "predict_time", "value": value, "mode": mode}})
            send({"metric": {"name": "a.b", "value": value, "mode": mode}})
            send({"metric": {"name": "a", "value": value, "mode": mode}})
    return "sent"


def name_a_file(text, **_):
    """Tells the server to read a file that the child itself did not check."""
    send({"file_output": {"filename": text, "kind": "file_type", "mime_type": None, "offset": 0}})
    return ""


def name_an_oversized_file(text, **_):
    send({"file_output": {"filename": text, "kind": "oversized", "mime_type": None, "offset": 0}})
    return None


def bad_offset(text, **_):
    send({"file_output": {"filename": text, "kind": "file_type", "mime_type": "\r\nx: y", "offset": 2**60}})
    return ""


def close_slots(**_):
    for fd in slots():
        os.close(fd)
    time.sleep(60)


def close_all(**_):
    os.closerange(0, 4096)
    time.sleep(60)


def control_flood(number, **_):
    """Valid remarks on the control channel, many MiB of them."""
    pipes = [fd for fd in channels() if stat.S_ISFIFO(os.fstat(fd).st_mode)]
    remark = frame({"worker_log": {"target": "x", "level": "info", "message": "f" * 60_000}})
    for fd in pipes:
        try:
            for _i in range(number * 16):
                os.write(fd, remark)
        except OSError:
            continue
    return "flooded"


def second_ready(**_):
    """Says on the control channel that there are 1000 more slots."""
    message = {
        "ready": {
            "slots": list(range(1000)),
            "schema": {},
            "is_async": True,
            "has_healthcheck": True,
            "python": "0",
            "sdk": None,
        }
    }
    for fd in channels():
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            try:
                os.write(fd, frame(message))
            except OSError:
                continue
    return "lied"

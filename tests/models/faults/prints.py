"""Ways to print too much or too strange."""

import logging
import os
import sys
import threading

MIB = 1024 * 1024


def lines(number, **_):
    """This many MiB in lines of one KiB."""
    line = "x" * 1023 + "\n"
    for _i in range(number):
        for _k in range(1024):
            sys.stdout.write(line)
    return "printed"


def blocks(number, **_):
    """This many MiB in lines of one MiB."""
    line = "b" * (MIB - 1) + "\n"
    for _i in range(number):
        sys.stdout.write(line)
    return "printed"


def line(number, **_):
    """One line of this many MiB."""
    sys.stdout.write("y" * (number * MIB))
    return "printed"


def empty_lines(number, **_):
    """Many writes of nothing but a line break."""
    for _i in range(number):
        sys.stdout.write("\n")
    return "printed"


def flushes(number, **_):
    for _i in range(number):
        print("z", end="", flush=True)
    return "printed"


def descriptor(number, **_):
    """This many MiB past Python, straight to descriptor 1 and 2."""
    block = b"d" * 1023 + b"\n"
    for _i in range(number * 512):
        os.write(1, block)
        os.write(2, block)
    return "printed"


def odd_bytes(**_):
    sys.stdout.buffer.write(b"broken \xff\xfe\xc3 bytes\n")
    os.write(1, b"raw \xff\xfe\0 bytes\n")
    print("NUL \0 in the middle")
    print("\x1b[2J\x1b]0;title\x07 escapes \x9b31m")
    print("half \ud83d a surrogate")
    print("\u2028 separators \u2029 \x85 \x0b \x0c")
    print("tail", end="")
    return "printed"


def split_character(**_):
    """One character in two writes."""
    whole = "é".encode()
    sys.stdout.buffer.write(whole[:1])
    sys.stdout.buffer.write(whole[1:] + b"\n")
    return "printed"


def threads(number, **_):
    """Lines from many threads at once."""

    def work(which):
        for i in range(100):
            print(f"{which}:{i}")

    workers = [threading.Thread(target=work, args=(which,)) for which in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return "printed"


def background_flood(**_):
    """A thread that prints for ever, also when its job is over."""

    def work():
        while True:
            print("f" * 1000)

    threading.Thread(target=work, daemon=True).start()
    return "printed"


def forged(**_):
    """Lines that look like the server's own."""
    print("2026-01-01T00:00:00Z  INFO tidegate: this is a lie")
    print('{"level":"ERROR","message":"so is this"}')
    print("event: completed\ndata: {}\n\n")
    return "printed"


def broken_logger(**_):
    class Bad:
        def __str__(self):
            raise RuntimeError("no text")

    logging.getLogger("mine").warning("%s", Bad())
    return "printed"

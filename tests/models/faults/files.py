"""Output files that are none."""

import io
import os
import tempfile
import threading
from pathlib import Path

FOLDER = Path(tempfile.gettempdir())


def path(text, **_):
    return Path(text)


def fifo(**_):
    name = Path(tempfile.mkdtemp()) / "pipe"
    os.mkfifo(name)
    return name


def link_to(text, **_):
    """A symbolic link of the model's own, to something that is not."""
    name = Path(tempfile.mkdtemp()) / "link.txt"
    name.symlink_to(text)
    return name


def link_loop(**_):
    name = Path(tempfile.mkdtemp()) / "loop"
    name.symlink_to(name)
    return name


def sparse(number, **_):
    """A file that claims this many GiB and has none."""
    name = Path(tempfile.mkdtemp()) / "sparse.bin"
    with open(name, "wb") as file:
        file.truncate(number << 30)
    return name


def sparse_stream(number, **_):
    yield sparse(number)


def device(text, **_):
    return Path(text)


def device_handle(text, **_):
    return open(text, "rb")


def endless_handle(**_):
    class Endless(io.RawIOBase):
        def readable(self):
            return True

        def read(self, size=-1):
            return b"z" * (1 << 20)

    return Endless()


def handle_that_raises(**_):
    class Bad(io.RawIOBase):
        def readable(self):
            return True

        def read(self, size=-1):
            raise OSError("unreadable")

    return Bad()


def vanishing(**_):
    """Removes itself while the server looks for it."""
    name = Path(tempfile.mkdtemp()) / "gone.bin"
    name.write_bytes(b"x")
    threading.Timer(0, name.unlink).start()
    return name


def grows(**_):
    """Grows while it is read."""
    name = Path(tempfile.mkdtemp()) / "grows.bin"
    name.write_bytes(b"start")

    def more():
        with open(name, "ab", buffering=0) as file:
            for _i in range(200):
                file.write(b"m" * 65536)

    threading.Thread(target=more, daemon=True).start()
    return name


def many(number, **_):
    folder = Path(tempfile.mkdtemp())
    names = [folder / f"{i}.txt" for i in range(number)]
    for name in names:
        name.write_text(name.name)
    return names


def odd_names(**_):
    folder = Path(tempfile.mkdtemp())
    names = [folder / name for name in ("a b?c#d%2F.txt", "new\nline.txt", "é\u202e.txt", "x" * 200)]
    for name in names:
        name.write_text("odd")
    return names


def surrogate_name(**_):
    folder = Path(tempfile.mkdtemp())
    name = os.fsencode(folder) + b"/bad\xff.txt"
    with open(name, "w") as file:
        file.write("odd")
    return Path(os.fsdecode(name))


def fills_temp(number, **_):
    """Fills the temporary folder, or gives up after this many MiB."""
    name = Path(tempfile.mkdtemp()) / "filler"
    try:
        with open(name, "wb") as file:
            for _i in range(number):
                file.write(bytes(1024 * 1024))
                file.flush()
    except OSError as error:
        return error.strerror
    return "did not fill"

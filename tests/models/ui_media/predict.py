"""Returns files that the playground previews: a gallery of images, or a recording."""

import struct
import tempfile
import wave
import zlib
from pathlib import Path as Folder
from typing import Any

from cog import BasePredictor, Input, Path

COLOURS = [(14, 116, 144), (234, 176, 76), (180, 35, 24)]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def image(path: Folder, colour: tuple[int, int, int], size: int = 160) -> Path:
    row = b"\0" + bytes(colour) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * size)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    return Path(path)


def recording(path: Folder) -> Path:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\0\0" * 8000)
    return Path(path)


class Predictor(BasePredictor):
    def predict(self, kind: str = Input(default="gallery", choices=["gallery", "recording"])) -> Any:
        folder = Folder(tempfile.mkdtemp())
        if kind == "recording":
            return {"sound": recording(folder / "silence.wav"), "seconds": 1}
        return [image(folder / f"image{index}.png", colour) for index, colour in enumerate(COLOURS)]

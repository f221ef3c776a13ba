"""Returns files that the playground previews: a gallery of images, a recording, or a clip."""

import base64
import struct
import tempfile
import wave
import zlib
from pathlib import Path as Folder
from typing import Any

from cog import BasePredictor, Input, Path

#: A WebM video of 32 by 32 pixels, a third of a second long.
CLIP = base64.b64decode(
    "GkXfo59ChoEBQveBAULygQRC84EIQoKEd2VibUKHgQRChYECGFOAZwEAAAAAAAHVEU2bdLlNu4tTq4QVSalmU6yBbk27i1Or"
    "hBZUrmtTrIGTTbuLU6uEH0O2dVOsgdRNu4xTq4QcU7trU6yCAcPsrgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAVSalmoCrXsYMPQkBEiYRDSAo9TYCGQ2hyb21lV0GGQ2hyb21lFlSua7yuuteBAXPFhwV2XXJtZF6D"
    "gQFV7oEBhoVWX1ZQOOCdsIEguoEgU8CBAVWwkFWxgQFVuYECVbqBDVW7gQEfQ7Z1AQAAAAAAAOPngQCg2KGtgQAAAHACAJ0B"
    "KiAAIAAKRwiFhYiZhIg3ggJ08sZh/gAA/ttR8GyRTccTdgYAdaGmpqTugQGlnzACAJ0BKiAAIAAKhwiFhYiZhIg4AgAHkPPJ"
    "wP7rrgCgwaGhgQBjANEBACkRqAAYAB5X9AwANQcA/suzZO9L8GyRTXYAdaGYppbugQGlkbEBACoRwAAYABhYL/QACHAA+4EA"
    "oMGhoYEAyADRAQApEcAAGAAeV/QMADUHAP7bUfBskU3HE3YGAHWhmKaW7oEBpZGxAQAqEcAAGAAYWC/0AAhwAPuBYxxTu2uN"
    "u4uzgQC3hveBAfGB1A=="
)
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
    def predict(self, kind: str = Input(default="gallery", choices=["gallery", "recording", "clip"])) -> Any:
        folder = Folder(tempfile.mkdtemp())
        if kind == "clip":
            path = folder / "clip.webm"
            path.write_bytes(CLIP)
            return Path(path)
        if kind == "recording":
            return {"sound": recording(folder / "silence.wav"), "seconds": 1}
        return [image(folder / f"image{index}.png", colour) for index, colour in enumerate(COLOURS)]

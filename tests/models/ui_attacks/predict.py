"""Emits texts and files that would run script or load pages in a careless web UI, one per input."""

import base64
import sys
import tempfile
from pathlib import Path as File
from typing import Any

from cog import BasePredictor, Input, Path

SCRIPT = "<script>document.title='attacked'</script>"
MARKUP = "<img src=x onerror=\"document.title='attacked'\">"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" onload="document.title=\'attacked\'">'
    "<script>top.document.title='attacked'</script><rect width='40' height='40' fill='teal'/></svg>"
)
HTML = f"<!doctype html><body>{SCRIPT}{MARKUP}"
MARKDOWN = f"""# {MARKUP}

[click](javascript:alert(1)) [data](data:text/html,{SCRIPT}) ![pixel](https://attacker.example/pixel.png)

{SCRIPT} <iframe src="javascript:alert(1)"></iframe> https://example.com/ok
"""


def data_uri(media_type: str, text: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(text.encode()).decode()}"


OUTPUTS: dict[str, Any] = {
    "script": SCRIPT,
    "markup": MARKUP,
    "markdown": MARKDOWN,
    "svg": data_uri("image/svg+xml", SVG),
    "html_file": data_uri("text/html", HTML),
    "xhtml_file": data_uri("application/xhtml+xml", HTML),
    "fake_png": data_uri("image/png", HTML),
    "javascript_url": "javascript:document.title='attacked'",
    "remote_image": "https://attacker.example/pixel.png",
    "remote_list": ["https://attacker.example/a.png", "//attacker.example/c", "/v1/files/x.png"],
    "object": {MARKUP: SCRIPT, "__proto__": {"polluted": True}, "chart": data_uri("text/html", HTML)},
    "nested": [[[[[[MARKUP]]]]]],
    "long": "tide " * 40_000,
    "control": "\u202egnp.exe\u202c \x1b[31mred\x1b[0m \u2028 \ufeff",
}


def file(name: str, text: str) -> Path:
    path = File(tempfile.mkdtemp()) / name
    path.write_text(text)
    return Path(path)


class Predictor(BasePredictor):
    def predict(
        self,
        attack: str = Input(
            description="<img src=x onerror=\"document.title='attacked'\"> [x](javascript:alert(1))",
            default="script",
        ),
    ) -> Any:
        if attack == "logs":
            print(SCRIPT, MARKUP)
            print(MARKUP, file=sys.stderr)
            return "done"
        if attack == "error":
            raise ValueError(f"{SCRIPT}{MARKUP}")
        if attack == "metric":
            self.record_metric("name", MARKUP)
            return "done"
        if attack == "html_path":
            return file("page.html", HTML)
        if attack == "svg_path":
            return file("drawing.svg", SVG)
        return OUTPUTS[attack]

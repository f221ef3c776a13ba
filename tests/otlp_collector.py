"""An OTLP/HTTP collector: decodes the spans that a server exports, and lets a test wait for them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from waiting import wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


def traceparent(flags: str = "01") -> dict[str, str]:
    """The header of a client that has a trace."""
    return {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}


@dataclass(frozen=True)
class Span:
    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    is_error: bool


class Collector:
    """A collector on a free port of this machine."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.requests: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._receive(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server that exports its spans here, soon after they have ended."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _receive(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert path == "/v1/traces", path
        export = ExportTraceServiceRequest.FromString(body)
        for resource in export.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [_span(service, span) for span in scope.spans]
        self.requests.append(headers)

    def wait(self, count: int, trace: str | None = None) -> dict[tuple[str, str], Span]:
        """Wait for so many spans, of a trace if one is given; return them by service and name."""

        def found() -> list[Span]:
            return [span for span in self.spans if trace in (None, span.trace)]

        wait_until(lambda: len(found()) >= count, f"{count} spans")
        spans = {(span.service.removeprefix("tidegate-"), span.name): span for span in found()}
        assert len(spans) == len(found()) == count, found()
        return spans


def _span(service: str, span: WireSpan) -> Span:
    return Span(
        service,
        span.name,
        WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
        span.status.code == Status.STATUS_CODE_ERROR,
    )


def _attributes(attributes: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}

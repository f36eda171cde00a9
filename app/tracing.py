"""Optional traces: a span for every HTTP request of the API, every Celery task, and every script call in them.

OpenTelemetry is imported only if the setting `traces` is on, which needs the extra `otel`. The standard variables of
OpenTelemetry set the receiver of the spans, their sampling and the name of the service: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and others. A process that forks starts its tracing after the fork.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

UNTRACED_URLS = r"^https?://[^/]+/(?:healthz|readyz|metrics)(?:\?|$)"
"""The addresses that monitoring requests every few seconds, as a pattern for whole URLs."""


class Tracing:
    """The spans of one process, sent by OTLP over HTTP unless another exporter is given."""

    def __init__(self, service: str, exporter: SpanExporter | None = None) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
        self.provider: TracerProvider = TracerProvider(resource=Resource.create(named))
        self._processor = BatchSpanProcessor(exporter or _otlp_exporter())
        self.provider.add_span_processor(self._processor)
        self._tracer = self.provider.get_tracer("poolkeeper")

    def script_span(self, name: str) -> AbstractContextManager[Span]:
        """Return the span of a script call, which ends with the context."""
        from opentelemetry.trace import SpanKind

        about = {"db.system.name": "redis", "db.operation.name": "EVALSHA", "db.stored_procedure.name": name}
        span: AbstractContextManager[Span] = self._tracer.start_as_current_span(
            f"script {name}", kind=SpanKind.CLIENT, attributes=about
        )
        return span

    def flush(self) -> None:
        """Send the spans that have ended."""
        self.provider.force_flush()

    def instrument_app(self, app: Any) -> None:
        """Make every request of a Flask application a span. The caller's `traceparent` is its parent."""
        from opentelemetry.instrumentation.flask import FlaskInstrumentor

        FlaskInstrumentor().instrument_app(app, tracer_provider=self.provider, excluded_urls=UNTRACED_URLS)

    def instrument_celery(self) -> None:
        """Make every Celery task of this process a span."""
        from opentelemetry.instrumentation.celery import CeleryInstrumentor

        CeleryInstrumentor().instrument(tracer_provider=self.provider)


def _otlp_exporter() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()

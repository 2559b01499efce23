"""The HTTP port at which Prometheus reads the metrics of a daemon or an agent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Info,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dlsched import __version__
from dlsched.core.errors import BadInput, Unavailable
from dlsched.rpc.bounded_http import BoundedHandler, BoundedServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("Cache-Control", "no-store"),
]
Values = Mapping[tuple[str, ...], float]  # by the values of the labels


def new_registry() -> CollectorRegistry:
    """Return a registry with the version, CPU time, memory and open files of this process.

    No metric of this process has a `_created` series beside it from then on.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # of the library
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    Info("dlsched_build", "This program", registry=registry).info({"version": __version__})
    return registry


def gauge(name: str, text: str, value: float | Values, labels: Sequence[str] = ()) -> Metric:
    """Return a gauge at one moment, with a value for each combination of its labels."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), value)


def counter(name: str, text: str, value: float | Values, labels: Sequence[str] = ()) -> Metric:
    """Return a counter at one moment; its name ends with `_total`."""
    return _filled(CounterMetricFamily(name, text, labels=labels), value)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, value: float | Values) -> Metric:
    for labels, each in (value if isinstance(value, Mapping) else {(): value}).items():
        family.add_metric(list(labels), each)
    return family


def certificate_metric(prefix: str, expires_at: float | None) -> Iterator[Metric]:
    """When this process's certificate expires, in seconds since the epoch; None: it has none."""
    if expires_at is not None:
        name = f"{prefix}_certificate_expiry_timestamp_seconds"
        yield gauge(name, "When the certificate of this process expires", expires_at)


class Moment(Collector):
    """Metrics that all change at once, so that no scrape sees half of them.

    Attributes:
        families: the metrics of the newest moment.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.families: Sequence[Metric] = ()
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the newest moment."""
        return self.families


class _Server(BoundedServer, WSGIServer):
    """Bounded, since any program of this machine may reach it, in the process of the daemon."""

    def __init__(self, where: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        if ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, handler)


class _Silent(BoundedHandler, WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log no scrape."""


class MetricsPort:
    """Listens for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Make it for a registry; it does not listen yet."""
        self._registry = registry
        self._server: tuple[_Server, threading.Thread] | None = None

    def listen(self, where: str, setting: str, page: Callable[[], bytes] | None = None) -> int:
        """Listen; returns the port.

        Args:
            where: HOST:PORT.
            setting: names it in errors.
            page: what `/` answers, as HTML; every other path has the metrics. None: `/` has, too.

        Raises:
            BadInput: for an address that is malformed.
            Unavailable: for one that is in use, or of another machine.
        """
        host, _, port = where.rpartition(":")
        if not host or not port.isdigit():
            raise BadInput(f"{setting}: {where!r} is not HOST:PORT")
        try:
            server = _Server((host.strip("[]"), int(port)), _Silent)
        except OSError as error:
            raise Unavailable(f"{setting}: cannot listen on {where}: {error}") from None
        metrics: WSGIApplication = make_wsgi_app(self._registry)
        server.set_app(metrics if page is None else _with_page(metrics, page))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._server = (server, thread)
        return int(server.server_port)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None


def _with_page(metrics: WSGIApplication, page: Callable[[], bytes]) -> WSGIApplication:
    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] not in ("", "/"):
            return metrics(environ, start_response)
        if environ["REQUEST_METHOD"] != "GET":
            start_response("405 Method Not Allowed", [("Allow", "GET")])
            return [b""]
        content = page()
        start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(content)))])
        return [content]

    return answer

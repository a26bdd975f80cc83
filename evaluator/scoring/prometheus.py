"""Metrics over HTTP, for a command without Ray: what Prometheus fetches from `--metrics-port`."""

import contextlib
from collections.abc import Iterable, Iterator

from prometheus_client import start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from evaluator.scoring.metrics import METRICS, Values
from evaluator_serving.errors import InputError


class PrometheusExporter(Collector):
    """The exporter: keeps the last values until somebody asks."""

    def __init__(self) -> None:
        self._values: Values = {}

    def publish(self, values: Values) -> None:
        """As `Exporter.publish`."""
        self._values = values

    def collect(self) -> Iterable[Family]:
        """Every metric with its values. Called in a thread of the server's."""
        values = self._values
        for metric in METRICS:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for (of, labels), value in values.items():
                if of is metric:
                    family.add_metric(labels, value)
            yield family


@contextlib.contextmanager
def served(address: tuple[str, int]) -> Iterator[PrometheusExporter]:
    """Serve metrics at http://HOST:PORT/metrics while the body runs. Raises InputError where the port can't be had."""
    page, registry = PrometheusExporter(), CollectorRegistry()
    registry.register(page)
    host, port = address
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        what = error.strerror or str(error)
        raise InputError(f"metrics can't be served at {host}:{port} ({what}): give another --metrics-port") from error
    try:
        yield page
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

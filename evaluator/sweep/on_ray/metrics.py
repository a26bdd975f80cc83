"""Metrics through Ray's exporter: each node's agent serves them to Prometheus beside Ray's, with `ray_` before their names."""

from ray.util.metrics import Counter, Gauge

from evaluator.scoring.metrics import METRICS, Metric, Values


class RayMetrics:
    """The exporter. Lives in the driver, which must have joined the cluster."""

    def __init__(self) -> None:
        self._counters = {m: Counter(m.name, m.help, m.labels) for m in METRICS if m.kind == "counter"}
        self._gauges = {m: Gauge(m.name, m.help, m.labels) for m in METRICS if m.kind == "gauge"}
        self._before: dict[tuple[Metric, tuple[str, ...]], float] = {}

    def publish(self, values: Values) -> None:
        """As `Exporter.publish`. Ray wants what a counter grew by, and more than nothing: one that stands at 0 isn't shown."""
        for key, value in values.items():
            metric, labels = key
            tags = dict(zip(metric.labels, labels, strict=True))
            if metric.kind == "gauge":
                self._gauges[metric].set(value, tags)
            elif (more := value - self._before.get(key, 0)) > 0:
                self._counters[metric].inc(more, tags)
        self._before = dict(values)

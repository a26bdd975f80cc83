"""Writes dashboard.json (Grafana) beside this file: `python deploy/watching/make_dashboard.py`. A test compares the two.

Every expression is made of the program's own metrics, by whatever exporter they come: Ray's puts `ray_` before their names.
"""

import json
from pathlib import Path
from typing import Any

from evaluator.scoring.metrics import (
    CHUNK_FAILURES,
    CHUNKS,
    DEVICE_MEMORY,
    FAILURES,
    HOST_MEMORY,
    LEFT,
    PROGRESS,
    REPLICAS,
    REQUESTS,
    RESTARTS,
    ROWS,
    SENTENCES,
    STAGES,
    TOKENS,
    Metric,
)

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 12, 8


def chosen(metric: Metric) -> str:
    """The metric's series of the runs and models that the reader has chosen."""
    only = "".join(f', {label}=~"${label}"' for label in ("run", "model") if label in metric.labels)
    return f'{{__name__=~"(ray_)?{metric.name}"{only}}}'


def by(metric: Metric, *labels: str, how: str = "sum") -> str:
    """A gauge: its sum (or greatest) by labels."""
    return f"{how} by ({', '.join(labels)}) ({chosen(metric)})"


def rate(metric: Metric, *labels: str) -> str:
    """A counter: how much it grows a second."""
    return f"sum by ({', '.join(labels)}) (rate({chosen(metric)}[$__rate_interval]))"


def panel(number: int, title: str, unit: str, *queries: tuple[str, str], kind: str = "timeseries") -> dict[str, Any]:
    """One panel of two columns; `queries` are expressions with their legends."""
    targets = [
        {"refId": chr(65 + i), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for i, (expression, legend) in enumerate(queries)
    ]
    return {
        "id": number + 1,
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "gridPos": {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    panels = [
        ("Seconds since the last progress", "s", (f"time() - {by(PROGRESS, 'run', how='max')}", "{{run}}")),
        ("Requests left", "short", (by(LEFT, "model"), "{{model}}")),
        ("Sentences a second", "short", (rate(SENTENCES, "model"), "{{model}}")),
        ("Tokens a second", "short", (rate(TOKENS, "model"), "{{model}}")),
        ("Rows a second", "short", (rate(ROWS, "model"), "{{model}}")),
        ("Requests a second", "short", (rate(REQUESTS, "model"), "{{model}}")),
        ("Chunks", "short", (by(CHUNKS, "model", "state"), "{{model}} {{state}}")),
        ("Replicas", "short", (by(REPLICAS, "model"), "{{model}}")),
        (
            "Failures and restarts",
            "short",
            (by(CHUNK_FAILURES, "model"), "{{model}}: chunks"),
            (by(FAILURES, "model"), "{{model}}: requests given up"),
            (by(RESTARTS, "model"), "{{model}}: replicas started again"),
        ),
        ("Where the time goes (seconds a second)", "s", (rate(STAGES, "stage"), "{{stage}}")),
        ("Device memory, peak", "bytes", (by(DEVICE_MEMORY, "model", "replica", how="max"), "{{model}}, replica {{replica}}")),
        ("Memory, peak", "bytes", (by(HOST_MEMORY, "model", "replica", how="max"), "{{model}}, replica {{replica}}")),
    ]
    variables = [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
    for label in ("run", "model"):
        series = f'{{__name__=~"(ray_)?{LEFT.name}"}}'
        query = {
            "name": label,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": f"label_values({series}, {label})",
        }
        variables.append({**query, "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*"})
    return {
        "title": "evaluator",
        "uid": "evaluator",
        "schemaVersion": 39,
        "tags": ["evaluator"],
        "time": {"from": "now-12h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": [panel(i, title, unit, *queries) for i, (title, unit, *queries) in enumerate(panels)],
    }


if __name__ == "__main__":
    text = json.dumps(dashboard(), indent=1) + "\n"
    (Path(__file__).parent / "dashboard.json").write_text(text, encoding="utf8")

"""The dashboard and the alerts refer to metrics that exist, with labels that they have."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from evaluator.scoring.metrics import METRICS, Metric

FOLDER = Path(__file__).parents[2] / "deploy" / "watching"
VARIABLES = {"$__rate_interval": "5m", "$run": ".*", "$model": ".*"}
"""What Grafana puts in before it asks."""


def metric_of(selector: Any) -> Metric:
    """The one metric that a selector is about, from either exporter. Raises ValueError."""
    names = [m for m in selector.matchers.matchers if m.name == "__name__"]
    wanted = names[0].value if names else re.escape(selector.name or "")
    found = [m for m in METRICS if all(re.fullmatch(wanted, prefix + m.name) for prefix in ("", "ray_"))]
    if len(found) != 1:
        raise ValueError(f"{wanted} is {len(found)} metrics")
    labels = {m.name for m in selector.matchers.matchers} - {"__name__"}
    if unknown := labels - set(found[0].labels):
        raise ValueError(f"{found[0].name} has no labels {unknown}")
    return found[0]


def check(expression: str, legend: str = "") -> list[Metric]:
    """The metrics of an expression. Raises ValueError for what can't be there."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    found: list[Metric] = []
    groups: list[list[str]] = []

    def within(node: Any) -> list[Any]:
        inner: list[Any] = []
        promql_parser.walk(node, lambda it: inner.append(it) and None)
        return inner

    def kind(node: Any, name: str) -> bool:
        return bool(type(node).__name__ == name)

    for node in within(promql_parser.parse(expression)):
        if kind(node, "VectorSelector"):
            found.append(metric_of(node))
        if kind(node, "AggregateExpr"):
            labels = list(node.modifier.labels) if node.modifier else []
            groups.append(labels)
            for selector in (it for it in within(node.expr) if kind(it, "VectorSelector")):
                if unknown := set(labels) - set(metric_of(selector).labels):
                    raise ValueError(f"{selector} has no labels {unknown}")
        if kind(node, "Call") and node.func.name in ("rate", "increase"):
            for selector in (it for it in within(node) if kind(it, "VectorSelector")):
                if metric_of(selector).kind != "counter":
                    raise ValueError(f"{node.func.name} of {metric_of(selector).name}, which is no counter")
    if not found:
        raise ValueError(f"{expression} asks no metric")
    for label in re.findall(r"{{\s*(\w+)\s*}}", legend):
        if not all(label in labels for labels in groups):
            raise ValueError(f"the legend's {label} is no label of the answer")
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of the dashboard and the alerts, with its legend."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for rule in yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf8"))["groups"][0]["rules"]:
        labels = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        yield rule["expr"], "".join(f"{{{{{label}}}}}" for label in labels)


def test_dashboard_and_alerts_ask_for_what_there_is_and_leave_nothing_out() -> None:
    asked = {metric.name for expression, legend in expressions() for metric in check(expression, legend)}
    assert asked == {metric.name for metric in METRICS}


def test_the_dashboard_is_what_its_program_writes() -> None:
    spec = importlib.util.spec_from_file_location("make_dashboard", FOLDER / "make_dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert json.loads((FOLDER / "dashboard.json").read_text(encoding="utf8")) == module.dashboard()

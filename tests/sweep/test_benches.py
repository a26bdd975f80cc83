"""What plans make of measurements on this hardware: rates and starts by hand, the newest first, none where there is none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from evaluator.reports.notes import plan_notes
from evaluator.sweep.benches import FORMAT, Hardware, MeasuredSpeed, Rates, Speeds, folder, keep
from evaluator.sweep.hardware import Fleet, Node, parse_fleet
from evaluator.sweep.planning.fit import Demand, allocations, first_start
from evaluator_serving.engine import EngineOptions

GIB = 1 << 30
ONE = MeasuredSpeed("onnx", "float32", 2, 100, 400, 1000.0, 3.0, 5.0, 2.0, "2026-01-01T00:00:00Z")
H100 = Hardware("cuda", "NVIDIA H100 80GB HBM3", 16)


def record(hardware: Hardware, when: str, rate: float, **more: Any) -> dict[str, Any]:
    start = {"process": 3.0, "first": 5.0, "next": 2.0}
    made = {"engine": "vllm", "dtype": "bfloat16", "threads": 2, "planning_tokens_s": rate, "start": start, **more}
    known = {"kind": hardware.kind, "name": hardware.name, "cores": hardware.cores}
    model = {"parameters": 1e9, "weights": 2e9}
    return {"kind": "bench", "format": FORMAT, "time": when, "hardware": known, "model": model, "ways": [made, {"error": "no"}]}


def demand(**changed: Any) -> Demand:
    plain = Demand("m", "vllm", "bfloat16", int(2e9), 4e9, 0, 16, 1_000_000, EngineOptions(dtype="bfloat16"))
    return replace(plain, **changed)


pytestmark = pytest.mark.usefixtures("own_cache")


def test_rates_between_and_beyond_what_was_measured() -> None:
    rates = Rates((ONE, replace(ONE, parameters=10_000, tokens_s=10.0)))
    assert rates.tokens_s("onnx", "float32", 100, 2) == 1000.0
    assert rates.tokens_s("onnx", "float32", 1000, 2) == pytest.approx(100.0)  # half way in logarithms
    assert rates.tokens_s("onnx", "float32", 50, 2) == pytest.approx(2000.0)
    assert rates.tokens_s("onnx", "float32", 20_000, 2) == pytest.approx(5.0)
    assert rates.tokens_s("onnx", "float32", 100, 1) == pytest.approx(500.0)  # half the threads
    assert rates.tokens_s("onnx", "int8", 100, 2) is None
    assert rates.tokens_s("vllm", "float32", 100, 2) is None


def test_starts_grow_with_the_weights() -> None:
    first, later = Rates((ONE,)).start("onnx", "float32", 400 + 1000, 100.0, 2) or (0.0, 0.0)
    assert (first, later) == (3.0 + 5.0 + 10.0, 2.0 + 10.0)
    assert Rates().start("onnx", "float32", 400, 100.0) is None


def test_the_newest_of_the_same_is_used_and_what_cannot_be_read_is_passed_over() -> None:
    keep(record(H100, "2026-01-02T00:00:00Z", 20_000.0))
    keep(record(H100, "2026-01-01T00:00:00Z", 10_000.0))
    (folder() / H100.key / "9.json").write_text("{")
    (folder() / H100.key / "8.json").write_text(json.dumps({"kind": "bench", "format": FORMAT, "ways": [{}]}))
    idle, odd = (record(H100, "2026-01-03T00:00:00Z", 0.0) for _ in range(2))
    odd["ways"][0]["planning_tokens_s"] = "fast"
    for name, content in {"7": [], "6": idle, "5": odd}.items():
        (folder() / H100.key / f"{name}.json").write_text(json.dumps(content))
    rates = Rates.of(H100)
    assert rates.tokens_s("vllm", "bfloat16", int(1e9)) == 20_000.0
    assert rates.newest == "2026-01-02T00:00:00Z"
    assert Rates.of(Hardware("cuda", "NVIDIA L4", 8)).measured == ()


def test_a_plan_takes_what_was_measured_on_its_cards() -> None:
    keep(record(H100, "2026-01-02T00:00:00Z", 20_000.0))
    here = Fleet((Node("cuda", H100.name, 2, 79 * GIB),))
    for fleet in (here, parse_fleet("2xH100-80")):
        speeds = Speeds.known(fleet)
        whole = allocations(demand(), fleet, speeds)[-1]
        assert whole.score == pytest.approx(1_000_000 / 10_000.0)  # twice the model, half the rate
        assert whole.load == pytest.approx(2.0 + 2e9 / 1.5e9)
        assert first_start(demand(), fleet, speeds) == pytest.approx(3.0 + 5.0 - 2.0)
        assert first_start(demand(tokens=0), fleet, speeds) == 0.0
    other = parse_fleet("2xA100-80")
    assert Speeds.known(other).newest == ""
    assert allocations(demand(), other, Speeds.known(other)) == allocations(demand(), other)
    given = Speeds.known(here, throughput=5.0)
    assert allocations(demand(), here, given)[-1].score == pytest.approx(1_000_000 * 2 / 5.0)


def test_reports_tell_what_was_planned_and_what_it_took() -> None:
    plan = {"time": "2026-01-03T10:00:00Z", "seconds": 60.0, "basis": "2026-01-02T00:00:00Z", "devices": 8}
    done = plan | {"price": 3.0, "took": 90.0, "whole": True}
    cut = plan | {"price": None, "took": None, "whole": False, "basis": ""}
    assert list(plan_notes({"plans": [done, cut]})) == [
        "the sweep of 2026-01-03 was planned to take 60 s (speeds measured on 2026-01-02) and took 90 s; "
        "cost 0.60, planned 0.40 at 3 a device-hour.",
        "the sweep of 2026-01-03 was planned to take 60 s (speeds from data sheets) and was interrupted.",
    ]
    assert list(plan_notes({})) == []
